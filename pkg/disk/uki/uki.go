// Package uki makes unified kernel images: one EFI program with a kernel, its initial RAM disk and its command line, which one
// signature covers (the specification "Unified Kernel Image" of the UAPI group). It also reads them, and writes the initial RAM
// disk's archive.
//
// Its rule: the result follows from the input alone, byte by byte.
package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Section is a section of an image.
type Section struct {
	Name    string
	Content []byte
}

// The names of the sections that systemd's stub reads.
const (
	Linux       = ".linux"
	Initrd      = ".initrd"
	CommandLine = ".cmdline"
	OSRelease   = ".osrel"
	Release     = ".uname"
)

const (
	sectionHeader = 40 // bytes of a section's header
	// Offsets in the optional header, which are the same for PE32+ on every machine.
	offsetImageSize, offsetChecksum = 56, 64

	characteristicsData = pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ
	// Firmware maps the kernel's section executable where it protects memory.
	characteristicsCode = pe.IMAGE_SCN_CNT_CODE | pe.IMAGE_SCN_MEM_READ | pe.IMAGE_SCN_MEM_EXECUTE
)

// Make adds sections to the stub of systemd (systemd-stub(7)), which has room for them in its header.
func Make(stub []byte, sections []Section) ([]byte, error) {
	f, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		return nil, fmt.Errorf("stub of the kernel image: %w", err)
	}
	optional, ok := f.OptionalHeader.(*pe.OptionalHeader64)
	if !ok || len(f.Sections) == 0 || optional.FileAlignment == 0 || optional.SectionAlignment == 0 {
		return nil, errors.New("stub of the kernel image: it is no 64-bit EFI program")
	}
	headers := int(binary.LittleEndian.Uint32(stub[0x3c:])) + 4 + binary.Size(f.FileHeader) + int(f.SizeOfOptionalHeader)
	next := headers + sectionHeader*len(f.Sections)
	if room := (int(optional.SizeOfHeaders) - next) / sectionHeader; room < len(sections) {
		return nil, fmt.Errorf("stub of the kernel image: its header has room for %d more sections, and %d are needed", room, len(sections))
	}
	out := align(bytes.Clone(stub), optional.FileAlignment)
	address := uint32(0)
	for _, s := range f.Sections {
		if s.Size > 0 && s.Offset+s.Size > uint32(len(out)) {
			return nil, fmt.Errorf("stub of the kernel image: section %s is not all there", s.Name)
		}
		address = max(address, s.VirtualAddress+max(s.VirtualSize, s.Size))
	}
	for _, s := range sections {
		if f.Section(s.Name) != nil || len(s.Name) > 8 {
			return nil, fmt.Errorf("stub of the kernel image: section %q is there already, or too long a name", s.Name)
		}
		address = up(address, optional.SectionAlignment)
		head := pe.SectionHeader32{VirtualSize: uint32(len(s.Content)), VirtualAddress: address, SizeOfRawData: up(uint32(len(s.Content)), optional.FileAlignment),
			PointerToRawData: uint32(len(out)), Characteristics: characteristicsData}
		if s.Name == Linux {
			head.Characteristics = characteristicsCode
		}
		copy(head.Name[:], s.Name)
		if _, err := binary.Encode(out[next:next+sectionHeader], binary.LittleEndian, head); err != nil {
			return nil, err
		}
		next += sectionHeader
		address += head.VirtualSize
		out = align(append(out, s.Content...), optional.FileAlignment)
	}
	at := headers - int(f.SizeOfOptionalHeader)
	binary.LittleEndian.PutUint16(out[at-binary.Size(f.FileHeader)+2:], uint16(len(f.Sections)+len(sections)))
	binary.LittleEndian.PutUint32(out[at+offsetImageSize:], up(address, optional.SectionAlignment))
	binary.LittleEndian.PutUint32(out[at+offsetChecksum:], 0) // firmware does not look at it
	return out, nil
}

// Read returns the content of a section.
func Read(image io.ReaderAt, name string) ([]byte, error) {
	f, err := pe.NewFile(image)
	if err != nil {
		return nil, fmt.Errorf("kernel image: %w", err)
	}
	s := f.Section(name)
	if s == nil {
		return nil, fmt.Errorf("kernel image: it has no section %s", name)
	}
	content, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf("kernel image: section %s: %w", name, err)
	}
	return content[:min(len(content), int(s.VirtualSize))], nil
}

func up(n, unit uint32) uint32 { return (n + unit - 1) / unit * unit }

func align(b []byte, unit uint32) []byte {
	return append(b, make([]byte, up(uint32(len(b)), unit)-uint32(len(b)))...)
}
