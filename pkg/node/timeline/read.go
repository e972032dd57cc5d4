package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// MarkReady is the name of the mark at which every role worked.
const MarkReady = "ready"

// marksFile has the marks of this boot.
const marksFile = "/run/hardtack/marks.json"

// Manager is the service manager that started the machine.
type Manager interface {
	// Boot says when the stages of the boot began.
	Boot(ctx context.Context) (Boot, error)
	// Units returns the present state of the named units.
	Units(ctx context.Context, names ...string) ([]Unit, error)
}

// Read builds the timeline of this boot from the manager's data about these units. now is in microseconds since the
// kernel began.
func Read(ctx context.Context, manager Manager, m Machine, units []string, marks []Mark, now uint64) (Timeline, error) {
	stages, err := manager.Boot(ctx)
	if err != nil {
		return Timeline{}, err
	}
	started, err := manager.Units(ctx, units...)
	if err != nil {
		return Timeline{}, err
	}
	t := Build(m, stages, started, marks, now)
	for _, mark := range marks {
		if mark.Name == MarkReady {
			t.Ready = mark.At
		}
	}
	return t, nil
}

// SaveMarks saves the marks of this boot below the root directory.
func SaveMarks(root string, marks []Mark) error {
	text, err := json.Marshal(marks)
	if err == nil {
		_, err = file.Replace(filepath.Join(root, marksFile), text, 0o644)
	}
	if err != nil {
		return fmt.Errorf("keeping the marks of the boot: %w", err)
	}
	return nil
}

// LoadMarks returns the saved marks; none before the machine is ready.
func LoadMarks(root string) (marks []Mark, err error) {
	text, err := os.ReadFile(filepath.Join(root, marksFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &marks)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the marks of the boot: %w", err)
	}
	return marks, nil
}
