package wait

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// recheckInterval is how often files are looked for although nothing was said to have changed: a watch is lost
// when its directory is unmounted or moved.
const recheckInterval = 10 * time.Second

// files waits until every group of files has one that is there.
func (w *waiter) files(ctx context.Context) error {
	if missing(w.Files) == nil {
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching files: %w", err)
	}
	defer func() { _ = watcher.Close() }() // nothing is written
	for {
		// Watches first: what appears between a look and its watch would be missed.
		for _, group := range w.Files {
			for _, file := range group {
				if err := watch(watcher, file); err != nil {
					return err
				}
			}
		}
		err := missing(w.Files)
		if err == nil {
			return nil
		}
		w.report(ctx, err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, while waiting: %w", context.Cause(ctx), err)
		case <-watcher.Events:
		case err := <-watcher.Errors: // an overflow, after which the next look finds what was lost
			w.Log.DebugContext(ctx, "looking again", "error", err)
		case <-time.After(recheckInterval):
		}
	}
}

// watch watches the directory of a file, or the nearest above it that is there.
func watch(watcher *fsnotify.Watcher, file string) error {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		err := watcher.Add(dir)
		switch {
		case err == nil:
			return nil
		case dir != "/" && dir != "." && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)):
		default:
			return fmt.Errorf("watching %s: %w", dir, err)
		}
	}
}

// missing returns nil when every group has a file that can be used, and an error that names the others.
func missing(groups [][]string) error {
	var texts []string
	for _, group := range groups {
		var why []string
		for _, file := range group {
			err := checkUsable(file)
			if err == nil {
				why = nil
				break
			}
			why = append(why, fmt.Sprintf("%s %v", file, err))
		}
		if len(why) > 0 {
			texts = append(texts, strings.Join(why, " and "))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return reason.Errorf(reason.File, "%s", strings.Join(texts, ", "))
}

func checkUsable(file string) error {
	f, err := os.Open(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("is not there")
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("is not readable by user %d", os.Geteuid())
	case err != nil:
		return errors.Unwrap(err)
	}
	defer func() { _ = f.Close() }() // not even read
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("is not a file")
	case info.Size() == 0:
		return errors.New("is empty")
	}
	return nil
}
