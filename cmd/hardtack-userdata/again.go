package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
)

// tryFile is there from the start of a try of this boot until one has succeeded. It says what systemd's NRestarts= does,
// for which a connection to the service manager and eight questions would be on the way of every boot.
const tryFile = "/run/hardtack/reading"

// everyUnit is the target that wants all units of all roles.
const everyUnit = "multi-user.target"

// try is one run of the program. The zero value is that of a person, or of another root directory.
type try struct {
	// file is the tryFile; "" is none.
	file string
	// again: an earlier try of this boot has not succeeded, whether it failed, was killed or hung.
	again bool
}

// begin begins a try of the unit. If it cannot be known whether it is the first, it is taken for another one, which starts
// what is there already.
func begin(s command.Streams, root, file string) try {
	if s.Unit != command.ReaderUnit || root != "/" {
		return try{}
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return try{file, true}
	}
	_ = f.Close() // nothing was written
	return try{file, false}
}

// succeed ends a try that has succeeded. If it is not the boot's first it calls start, which starts the units of the machine's
// roles: they have looked at their conditions already. At the first try they wait for this unit.
func (t try) succeed(ctx context.Context, log *slog.Logger, start func(context.Context) error) error {
	if t.file == "" {
		return nil
	}
	if t.again {
		log.InfoContext(ctx, "starting the units that were skipped before there was user data")
		if err := start(ctx); err != nil {
			return err
		}
	}
	if err := os.Remove(t.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("recording that the user data was read: %w", err)
	}
	return nil
}

// startEveryUnit queues a start of every unit of the machine's roles.
func startEveryUnit(ctx context.Context) error {
	m, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Start(ctx, everyUnit)
}
