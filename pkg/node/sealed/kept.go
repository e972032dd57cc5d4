package sealed

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

// bring copies a file that lasts into /etc, and makes it at the first boot.
func (k Kept) bring() error {
	content, err := os.ReadFile(k.State)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(content) == 0 {
		if content, err = k.make(); err == nil {
			err = os.MkdirAll(filepath.Dir(k.State), 0o755)
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

// newMachineID makes a random machine id (machine-id(5)).
func newMachineID() ([]byte, error) {
	id, err := uuid.NewRandom() // version 4, as systemd makes them
	return []byte(hex.EncodeToString(id[:]) + "\n"), err
}

func readText(name string) (string, error) {
	data, err := os.ReadFile(name)
	return string(data), err
}
