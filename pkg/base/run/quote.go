package run

import "strings"

// Quote quotes any text as one word of a POSIX shell.
func Quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
