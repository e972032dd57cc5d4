//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fatih/color"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

func labLogsCommand() *cli.Command {
	return &cli.Command{
		Name:      "logs",
		Usage:     "print the journal or console log of machines, running or stopped; of several, each line has its machine before it, and without MACHINE it is all that run",
		ArgsUsage: "[MACHINE...]",
		Flags: labFlags(
			&cli.BoolFlag{Name: "console", Usage: "print the serial console instead: firmware, kernel and systemd"},
			&cli.BoolFlag{Name: "f", Aliases: []string{"follow"}, Usage: "follow the output until Ctrl-C; without MACHINE, of machines that start meanwhile too"},
			&cli.BoolFlag{Name: "path", Usage: "print only the files' paths"},
		),
		Action: labLogs,
	}
}

// machineLog is a machine's log and what is written before its lines.
type machineLog struct{ prefix, file string }

// moreLogs is how often a lab is asked for machines that have started.
const moreLogs = 2 * time.Second

func labLogs(c *cli.Context) error {
	h, err := labHome(c)
	if err != nil {
		return err
	}
	logs, err := logsOf(c, h)
	if err != nil {
		return err
	}
	if c.Bool("path") {
		for _, l := range logs {
			if _, err := fmt.Fprintln(c.App.Writer, l.file); err != nil {
				return err
			}
		}
		return nil
	}
	if c.NArg() == 1 {
		return follow(c.Context, c.App.Writer, logs[0].file, c.Bool("f"))
	}
	return followAll(c, h, logs)
}

// logsOf returns the logs of the machines of the command line. While the lab runs, MACHINE may be any name of the machine,
// later only its instance id.
func logsOf(c *cli.Context, h lab.Home) (logs []machineLog, err error) {
	name := lab.JournalFile
	if c.Bool("console") {
		name = lab.ConsoleFile
	}
	status, err := lab.NewClient(h).Status(c.Context)
	stopped := errors.Is(err, lab.ErrNotRunning)
	if err != nil && (!stopped || c.NArg() == 0) {
		return nil, err
	}
	if c.NArg() == 0 {
		for _, m := range status.Machines {
			if m.Power == "on" {
				if file, err := h.LogOf(m.ID, name); err == nil { // one that has just started has none yet
					logs = append(logs, machineLog{m.Group + " " + m.Address.String(), file})
				}
			}
		}
		return logs, nil
	}
	for _, word := range c.Args().Slice() {
		m := lab.MachineStatus{ID: word}
		prefix := word
		if !stopped {
			if m, err = status.Find(word); err != nil {
				return nil, err
			}
			prefix = m.Group + " " + m.Address.String()
		}
		file, err := h.LogOf(m.ID, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", word, err)
		}
		logs = append(logs, machineLog{prefix, file})
	}
	return logs, nil
}

// followAll prints several logs, each line with its machine before it.
func followAll(c *cli.Context, h lab.Home, logs []machineLog) error {
	ctx, cancel := context.WithCancelCause(c.Context)
	defer cancel(nil)
	out := &lineWriter{out: c.App.Writer}
	var group sync.WaitGroup
	seen := map[string]bool{}
	start := func(logs []machineLog) {
		for _, l := range logs {
			if seen[l.file] {
				continue
			}
			paint := prefixColors[len(seen)%len(prefixColors)]
			seen[l.file] = true
			group.Go(func() {
				w := out.of(paint.Sprint(l.prefix + " | "))
				if err := errors.Join(follow(ctx, w, l.file, c.Bool("f")), w.end()); err != nil {
					cancel(err)
				}
			})
		}
	}
	start(logs)
	for c.Bool("f") && c.NArg() == 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(moreLogs):
			more, err := logsOf(c, h)
			if errors.Is(err, lab.ErrNotRunning) { // it was ended
				cancel(nil)
			}
			start(more)
		}
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil && c.Err() == nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// prefixColors tell machines apart.
var prefixColors = []*color.Color{color.New(color.FgCyan), color.New(color.FgGreen), color.New(color.FgYellow), color.New(color.FgMagenta), color.New(color.FgBlue)}

// lineWriter lets several write whole lines into one.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lineWriter) of(prefix string) *prefixed { return &prefixed{to: l, prefix: prefix} }

// prefixed writes a prefix before each line, once the line is complete.
type prefixed struct {
	to     *lineWriter
	prefix string
	held   []byte
}

func (p *prefixed) Write(data []byte) (int, error) {
	p.held = append(p.held, data...)
	var b strings.Builder
	for {
		n, line, _ := bufio.ScanLines(p.held, false)
		if n == 0 {
			break
		}
		b.WriteString(p.prefix + string(line) + "\n")
		p.held = p.held[n:]
	}
	p.to.mu.Lock()
	defer p.to.mu.Unlock()
	_, err := io.WriteString(p.to.out, b.String())
	return len(data), err
}

// end writes a last line that has no end.
func (p *prefixed) end() error {
	if len(p.held) == 0 {
		return nil
	}
	_, err := p.Write([]byte("\n"))
	return err
}

// follow prints a file and, if on is set, text added to it until ctx ends.
func follow(ctx context.Context, out io.Writer, file string, on bool) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the machine's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	for {
		if _, err := io.Copy(out, f); err != nil {
			return fmt.Errorf("printing %s: %w", file, err)
		}
		if !on {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
