package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
)

// TestTries starts the machine's units at the first success after a failure, and at no other.
func TestTries(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	unit := command.Streams{Unit: command.ReaderUnit}
	missing := filepath.Join(t.TempDir(), "no-directory", "reading")
	refused := errors.New("refused")
	for name, tt := range map[string]struct {
		streams  command.Streams
		root     string
		file     string
		outcomes string // of the tries in order: - is a failure, + a success, ! a success of which the start fails
		starts   int
	}{
		"at once":            {unit, "/", "", "+", 0},
		"after a failure":    {unit, "/", "", "-+", 1},
		"after two":          {unit, "/", "", "--+", 1},
		"started again":      {unit, "/", "", "-++", 1},
		"the start fails":    {unit, "/", "", "-!+", 2},
		"no place for it":    {unit, "/", missing, "+", 1},
		"a person":           {command.Streams{}, "/", "", "-+", 0},
		"another root":       {unit, "/mnt", "", "-+", 0},
		"a unit of somebody": {command.Streams{Unit: "other.service"}, "/", "", "-+", 0},
	} {
		t.Run(name, func(t *testing.T) {
			file := tt.file
			if file == "" {
				file = filepath.Join(t.TempDir(), "reading")
			}
			starts := 0
			for _, outcome := range tt.outcomes {
				attempt := begin(tt.streams, tt.root, file)
				if outcome == '-' {
					continue
				}
				err := attempt.succeed(t.Context(), log, func(context.Context) error {
					starts++
					if outcome == '!' {
						return refused
					}
					return nil
				})
				if outcome == '!' != errors.Is(err, refused) {
					t.Errorf("%c: %v", outcome, err)
				}
			}
			if starts != tt.starts {
				t.Errorf("started %d times, want %d", starts, tt.starts)
			}
		})
	}
}
