package e2e

import (
	"encoding/json"
	"io/fs"
	"testing"
)

// onlyFile is a directory with one file of another.
type onlyFile struct {
	fs.FS
	name string
}

// Glob has the one file, whatever the pattern.
func (o onlyFile) Glob(string) ([]string, error) { return []string{o.name}, nil }

// normal is an object of YAML with the types that JSON has.
func normal(t *testing.T, object map[string]any) map[string]any {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
