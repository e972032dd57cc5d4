package bake

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"strings"
)

// Packages lists the Debian packages that every image needs, from the assets' file "packages": one a line, "#" begins a
// comment.
func Packages(assets fs.FS) ([]string, error) {
	data, err := fs.ReadFile(assets, "packages")
	if err != nil {
		return nil, fmt.Errorf("reading the package list: %w", err)
	}
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		names = append(names, strings.Fields(line)...)
	}
	return names, nil
}
