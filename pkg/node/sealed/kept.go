package sealed

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// bring copies a file that lasts into /etc. It makes it at the first boot, and where a crash or somebody has left another thing in
// its place, which goes.
func (k Kept) bring() error {
	content, err := k.kept()
	if err == nil && content == nil {
		if content, err = k.make(); err == nil {
			err = errors.Join(os.RemoveAll(k.State), os.MkdirAll(filepath.Dir(k.State), 0o755))
		}
		if err == nil {
			_, err = file.Replace(k.State, content, 0o444)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(k.Path, content, 0o444)
}

// kept is what lasts; nil where that is not what make makes.
func (k Kept) kept() ([]byte, error) {
	info, err := os.Lstat(k.State) // whoever opens a pipe waits for its other end
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(k.State)
	if err != nil || !k.isValid(content) {
		return nil, err
	}
	return content, nil
}

// newMachineID makes a random machine id (machine-id(5)).
func newMachineID() ([]byte, error) {
	id, err := uuid.NewRandom() // version 4, as systemd makes them
	return []byte(hex.EncodeToString(id[:]) + "\n"), err
}

// isMachineID reports whether systemd would take it: 32 hexadecimal digits in lower case, and not only zeros.
func isMachineID(text []byte) bool {
	id, ok := bytes.CutSuffix(text, []byte("\n"))
	return ok && len(id) == 32 && len(bytes.Trim(id, "0123456789abcdef")) == 0 && len(bytes.Trim(id, "0")) > 0
}

func readText(name string) (string, error) {
	data, err := os.ReadFile(name)
	return string(data), err
}
