package timeline_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// manager returns its data, and records which units were requested.
type manager struct {
	asked []string
	err   error
}

func (m *manager) Boot(context.Context) (timeline.Boot, error) { return timeline.Boot{}, nil }

func (m *manager) Units(_ context.Context, names ...string) ([]timeline.Unit, error) {
	m.asked = names
	return nil, m.err
}

func TestRead(t *testing.T) {
	m := &manager{}
	marks := []timeline.Mark{{Name: timeline.MarkReady, At: 7000}, {Name: "launched", At: 8000}}
	got, err := timeline.Read(t.Context(), m, timeline.Machine{Node: "a"}, []string{"etcd.service"}, marks, 9_000_000)
	if err != nil || got.Ready != 7000 || got.Node != "a" || len(got.Marks) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"etcd.service"}, m.asked); diff != "" {
		t.Error(diff)
	}
	m.err = errors.New("no bus")
	if _, err := timeline.Read(t.Context(), m, timeline.Machine{}, nil, nil, 0); !errors.Is(err, m.err) {
		t.Errorf("%v", err)
	}
}

func TestMarks(t *testing.T) {
	root := t.TempDir()
	if got, err := timeline.LoadMarks(root); got != nil || err != nil {
		t.Errorf("before the machine is ready: %v, %v", got, err)
	}
	marks := []timeline.Mark{{Name: timeline.MarkReady, At: 7000}}
	if err := timeline.SaveMarks(root, marks); err == nil {
		t.Error("a directory is made: /run/hardtack is the unit's")
	}
	dir := filepath.Join(root, "run/hardtack")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := timeline.SaveMarks(root, marks); err != nil {
		t.Fatal(err)
	}
	got, err := timeline.LoadMarks(root)
	if diff := cmp.Diff(marks, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := os.WriteFile(filepath.Join(dir, "marks.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := timeline.LoadMarks(root); err == nil {
		t.Error("half a file is no error")
	}
}
