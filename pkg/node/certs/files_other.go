//go:build !linux

package certs

import (
	"fmt"
	"io/fs"
)

// requireTmpfs refuses: only machines mint, and they run Linux. The command shares this package's words.
func requireTmpfs(dir string) error { return fmt.Errorf("%s: keys are minted on Linux only", dir) }

func groupOf(fs.FileInfo) int { return -1 }
