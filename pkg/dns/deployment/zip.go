package deployment

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"fmt"
	"io"
	"os"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// programLimit is Lambda's limit for an unpacked package, in bytes.
const programLimit = 250 << 20

// ReadZip reads a function's package: its digest in Lambda's format, and the architecture of its program.
func ReadZip(file string) (doctor.Zip, error) {
	fail := func(err error) (doctor.Zip, error) {
		return doctor.Zip{}, fmt.Errorf("reading the function's package %s: %w (make lambda builds it)", file, err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fail(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return fail(err)
	}
	program, err := archive.Open("bootstrap")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = program.Close() }() // it was only read
	unpacked, err := io.ReadAll(io.LimitReader(program, programLimit))
	if err != nil {
		return fail(err)
	}
	binary, err := elf.NewFile(bytes.NewReader(unpacked))
	if err != nil {
		return fail(err)
	}
	sum := sha256.Sum256(data)
	z := doctor.Zip{File: file, SHA256: base64.StdEncoding.EncodeToString(sum[:])}
	switch binary.Machine {
	case elf.EM_AARCH64:
		z.Architecture = "arm64"
	case elf.EM_X86_64:
		z.Architecture = "x86_64"
	default:
		return fail(fmt.Errorf("its program is for %s, which Lambda does not have", binary.Machine))
	}
	return z, nil
}
