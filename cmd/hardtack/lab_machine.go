//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// detachKey is Ctrl-], as in telnet and virsh.
const detachKey = 0x1d

func labShellCommand() *cli.Command {
	return &cli.Command{
		Name:      "shell",
		Usage:     "open a root shell on a machine's second serial port; Ctrl-] leaves it",
		ArgsUsage: "MACHINE",
		Flags:     labFlags(),
		Action: onMachine(func(c *cli.Context, _ lab.Home, client *lab.Client, m lab.MachineStatus) error {
			line, err := client.Shell(c.Context, m.ID)
			if err != nil {
				return err
			}
			defer func() { _ = line.Close() }()
			return attachTerminal(os.Stdin, c.App.Writer, line)
		}),
	}
}

func labExecCommand() *cli.Command {
	return &cli.Command{
		Name:  "exec",
		Usage: "run a command as root on a machine, by its second serial port, and exit with its status; it has no input, and one output",
		// What follows the machine is the command's own.
		SkipFlagParsing: true,
		ArgsUsage:       "[--name NAME] MACHINE [--] COMMAND [ARGUMENTS]",
		Action:          labExec,
	}
}

func labExec(c *cli.Context) error {
	name, args := leadingName(c.Args().Slice(), os.Getenv("HARDTACK_LAB"))
	if len(args) > 1 && args[1] == "--" {
		args = append(args[:1:1], args[2:]...)
	}
	switch {
	case len(args) > 0 && (args[0] == "--help" || args[0] == "-h"):
		return cli.ShowSubcommandHelp(c)
	case len(args) < 2 || strings.HasPrefix(args[0], "-"):
		return usagef("a machine and a command are expected: hardtack lab exec MACHINE -- COMMAND [ARGUMENTS] (hardtack lab status lists the machines)")
	}
	h, err := labNamed(name)
	if err != nil {
		return err
	}
	client := lab.NewClient(h)
	s, err := client.Status(c.Context)
	if err != nil {
		return err
	}
	m, err := s.Find(args[0])
	if err != nil {
		return err
	}
	status, err := client.Exec(c.Context, m.ID, shellWords(args[1:]), c.App.Writer)
	if errors.Is(err, lab.ErrShellSilent) {
		return fmt.Errorf("%w (hardtack lab shell %s shows it)", err, args[0])
	}
	if err == nil && status != 0 {
		return exitf(status, "")
	}
	return err
}

// shellWords is a line of the shell: one word is a script, as with ssh; several are a command and its arguments as they are.
func shellWords(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}

// attachTerminal connects a terminal (or a pipe) and a serial line until one of them ends.
func attachTerminal(in *os.File, out io.Writer, line io.ReadWriteCloser) error {
	if fd := int(in.Fd()); term.IsTerminal(fd) {
		old, err := term.MakeRaw(fd)
		if err != nil {
			return fmt.Errorf("setting up the terminal: %w", err)
		}
		defer func() { _ = term.Restore(fd, old) }()
	}
	done := make(chan error, 2)
	go func() { _, err := io.Copy(out, line); done <- err }()
	go func() { done <- send(in, line) }()
	if _, err := line.Write([]byte("\n")); err != nil {
		return fmt.Errorf("using the machine's serial line: %w", err)
	}
	return <-done
}

// send copies the input until Ctrl-].
func send(in io.Reader, line io.Writer) error {
	buf := make([]byte, 256)
	for {
		n, err := in.Read(buf)
		for i, b := range buf[:n] {
			if b == detachKey {
				_, err := line.Write(buf[:i])
				return err
			}
		}
		if _, werr := line.Write(buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
