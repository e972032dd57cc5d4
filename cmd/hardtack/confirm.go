package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// A command that changes what others depend on shows what it would change, and has that confirmed: by a person at the
// terminal, or by --yes where nobody is. So a command that was typed by mistake, or for the wrong cluster, changes nothing.
// What only adds, as pki create does, is not asked for.

// confirmFlags are the flags of such a command.
func confirmFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "yes", Usage: "do it without asking; needed where nobody is at a terminal"},
		dryRunFlag(),
	}, more...)
}

// refuseYesAndDryRun reports a command line with both flags.
func refuseYesAndDryRun(c *cli.Context) error {
	if c.Bool("yes") && c.Bool("dry-run") {
		return usagef("--yes and --dry-run contradict each other: give one")
	}
	return nil
}

// atTerminal reports whether there is a person to ask: one who types what the program reads.
func atTerminal() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// toPerson returns where a person reads a question: standard error, or the terminal itself if that goes elsewhere.
func toPerson(c *cli.Context) (w io.Writer, done func()) {
	if f, ok := c.App.ErrWriter.(*os.File); ok && !term.IsTerminal(int(f.Fd())) && atTerminal() {
		if tty, err := os.OpenFile("/dev/tty", os.O_WRONLY, 0); err == nil {
			return tty, func() { _ = tty.Close() }
		}
	}
	return c.App.ErrWriter, func() {}
}

// proceed asks whether to do what has been shown; the question says to what. It returns nil if the answer is yes.
func proceed(c *cli.Context, question string) error {
	if c.Bool("yes") {
		return nil
	}
	if !atTerminal() {
		return usagef("%s nobody is at a terminal to say so, and nothing is changed: --yes does it, --dry-run only shows it", question)
	}
	person, done := toPerson(c)
	defer done()
	fmt.Fprintf(person, "%s [y/N] ", question)
	answer, err := readLine(c.Context)
	if err != nil {
		return err
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return errors.New("nothing is changed")
}

// readLine reads a line from the terminal, until the program is interrupted.
func readLine(ctx context.Context) (string, error) {
	return interruptible(ctx, func() (string, error) {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n') // at an error it is empty, which is no
		return line, nil
	})
}

// change is a command that changes something.
type change[A any] struct {
	// question is asked once the plan is shown.
	question string
	// run does it, or only says what would be done.
	run func(dry bool) (A, error)
	// due reports whether a plan has anything that needs a yes.
	due func(plan A) bool
	// text is an answer for people, answer prints it as the flags say.
	text   func(A) string
	answer func(A) error
}

// do shows what would be done, has it confirmed, and does it.
func (ch change[A]) do(c *cli.Context) error {
	if !c.Bool("yes") {
		plan, err := ch.run(true)
		if err != nil {
			return err
		}
		if c.Bool("dry-run") {
			return ch.answer(plan)
		}
		if ch.due(plan) {
			person, done := toPerson(c)
			fmt.Fprint(person, ch.text(plan))
			done()
			if err := proceed(c, ch.question); err != nil {
				return err
			}
		}
	}
	done, err := ch.run(false)
	if err != nil {
		return err
	}
	return ch.answer(done)
}
