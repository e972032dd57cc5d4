package sealed

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// bring copies a file that lasts into /etc, and makes it at the first boot.
func (k Kept) bring() error {
	content, err := os.ReadFile(k.State)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(content) == 0 {
		if content, err = k.make(); err == nil {
			err = replace(k.State, content)
		}
	}
	if err != nil {
		return err
	}
	return os.WriteFile(k.Path, content, 0o444)
}

// replace writes a file so that a crash leaves the old one or the new one.
func replace(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// newMachineID makes a random machine id (machine-id(5)).
func newMachineID() ([]byte, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // a version 4 UUID, as systemd makes them
	return []byte(hex.EncodeToString(id[:]) + "\n"), nil
}

func readText(name string) (string, error) {
	data, err := os.ReadFile(name)
	return string(data), err
}
