package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Epochs notices that the cluster's etcd was restored from a backup. A master's daemons remember objects, revisions and leases
// of the epoch before, which there never were by the new one's account: they are started again, once.
type Epochs struct {
	// Root is the root directory of the machine; "" is "/".
	Root  string
	Store interface {
		Get(ctx context.Context, object string) ([]byte, error)
	}
}

// epochFile has the newest formed epoch when the daemons were started; 0 if none was. It ends with the boot.
const epochFile = "run/hardtack/etcd-epoch"

func (e Epochs) file() string { return filepath.Join("/", e.Root, epochFile) }

// Begin notes the epoch before the daemons are started for the first time since the boot. Later calls change nothing.
func (e Epochs) Begin(ctx context.Context) error {
	if _, err := os.Stat(e.file()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	newest, err := e.newest(ctx, 0)
	if err != nil {
		return err
	}
	return e.note(newest)
}

// Look reports whether another epoch was formed since, and then has marked the daemons that are to be started again: Restart
// does it. The first epoch replaces nothing.
func (e Epochs) Look(ctx context.Context) (changed bool, err error) {
	text, err := os.ReadFile(e.file())
	if errors.Is(err, fs.ErrNotExist) {
		return false, e.Begin(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("looking for etcd's epoch: %w", err)
	}
	known, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return false, fmt.Errorf("looking for etcd's epoch: %s: %w", e.file(), err)
	}
	newest, err := e.newest(ctx, known)
	if err != nil || newest == known {
		return false, err
	}
	if known > 0 {
		for _, dir := range []string{pki.DirAPIServer, pki.DirControllerManager, pki.DirScheduler} {
			if err := os.WriteFile(restartFile(e.Root, dir), nil, 0o600); err != nil {
				return false, fmt.Errorf("noting that %s is to be started again: %w", dir, err)
			}
		}
	}
	return known > 0, e.note(newest)
}

// newest returns the newest formed epoch, from one that is known.
func (e Epochs) newest(ctx context.Context, known int) (int, error) {
	newest := known
	for n := max(known, 0) + 1; ; n++ {
		_, err := e.Store.Get(ctx, etcd.BeginObject(n))
		if errors.Is(err, pki.ErrNotFound) {
			return newest, nil
		}
		if err != nil {
			return 0, fmt.Errorf("looking for etcd's epoch: %w", err)
		}
		data, err := e.Store.Get(ctx, etcd.OutcomeObject(n))
		if errors.Is(err, pki.ErrNotFound) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("looking for etcd's epoch: %w", err)
		}
		outcome, err := etcd.Parse[etcd.Outcome](data)
		if err != nil {
			return 0, fmt.Errorf("looking for etcd's epoch: %s: %w", etcd.OutcomeObject(n), err)
		}
		if outcome.Formed != nil {
			newest = n
		}
	}
}

func (e Epochs) note(epoch int) error {
	if _, err := file.Replace(e.file(), []byte(strconv.Itoa(epoch)+"\n"), 0o644); err != nil {
		return fmt.Errorf("noting etcd's epoch: %w", err)
	}
	return nil
}
