// Package judges knows where the outside judges of the tests are that scripts/setup --judges gets and does not install.
package judges

import (
	"os"
	"path/filepath"
)

// DataHome is the directory of a user's data files: XDG_DATA_HOME, or ~/.local/share where that is not set (XDG Base Directory
// Specification).
func DataHome() string {
	if data := os.Getenv("XDG_DATA_HOME"); data != "" {
		return data
	}
	home, _ := os.UserHomeDir() // without one, nothing is found there
	return filepath.Join(home, ".local", "share")
}

// Path is the path of what is there by these names, whether it exists or not.
func Path(names ...string) string {
	return filepath.Join(append([]string{DataHome(), "hardtack", "judges"}, names...)...)
}
