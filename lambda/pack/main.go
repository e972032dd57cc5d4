// Command pack writes a program as the zip that Lambda takes for provided.al2023.
//
// Its rule: the same program gives the same bytes, whoever packs it and when.
package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
)

func main() {
	out := flag.String("o", "", "the zip to write")
	limit := flag.Int("max", 0, "refuse to write a zip of more bytes than this; 0 for any")
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: pack -o ZIP [-max BYTES] PROGRAM")
		os.Exit(2)
	}
	if err := pack(*out, flag.Arg(0), *limit); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack writes out with the program as its one file, bootstrap, which is what Lambda runs.
func pack(out, program string, limit int) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading the program: %w", err)
	}
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	// The earliest time that a zip can say.
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o755)
	entry, err := w.CreateHeader(header)
	if err == nil {
		_, err = entry.Write(text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return fmt.Errorf("packing %s: %w", program, err)
	}
	if limit > 0 && b.Len() > limit {
		return fmt.Errorf("packing %s: the zip has %d bytes and may have %d: see what the program imports with go tool nm -size -sort size", program, b.Len(), limit)
	}
	if _, err := file.Replace(out, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(out), err)
	}
	return nil
}
