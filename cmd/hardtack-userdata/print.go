package main

import (
	"encoding/json"
	"io"
)

// printJSON prints JSON for every command. Keys are snake_case; TestJSONKeys in package cmd checks it.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
