// Package gpt reads the partition table of a disk (UEFI specification, chapter 5).
//
// Its rule: a table that its own checksums do not confirm is none. It is no library, since hardtack-init is loaded by every boot of a
// machine with a sealed root, and needs the reading alone.
package gpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"

	"github.com/google/uuid"
)

// Sector is the size of a sector in bytes; disks of larger ones are not read.
const Sector = 512

// Partition is an entry of the table.
type Partition struct {
	// Number counts from 1.
	Number int
	// Type says what it is for, ID which one it is.
	Type, ID uuid.UUID
	// Start and Size are in bytes.
	Start, Size int64
	Name        string
}

// ErrNone means that there is no table.
var ErrNone = errors.New("the disk has no GUID partition table")

// header is the table's in sector 1, little endian.
type header struct {
	Signature   [8]byte
	Revision    uint32
	HeaderSize  uint32
	HeaderSum   uint32
	_           uint32
	Current     uint64
	Backup      uint64
	First, Last uint64
	Disk        [16]byte
	EntriesAt   uint64
	Entries     uint32
	EntrySize   uint32
	EntriesSum  uint32
	_           [420]byte
}

type entry struct {
	Type, ID    [16]byte
	First, Last uint64
	Attributes  uint64
	Name        [36]uint16
}

const (
	headerSize = 92
	// mostEntries bounds what is read because a header says so; every tool writes 128.
	mostEntries = 1024
)

// Read reads the first of a disk's two tables.
func Read(disk io.ReaderAt) ([]Partition, error) {
	sector := make([]byte, Sector)
	if n, err := disk.ReadAt(sector, Sector); n < len(sector) {
		if errors.Is(err, io.EOF) {
			return nil, ErrNone // an empty drive
		}
		return nil, fmt.Errorf("partition table: %w", err)
	}
	var h header
	if _, err := binary.Decode(sector, binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("partition table: %w", err)
	}
	size := binary.Size(entry{})
	if string(h.Signature[:]) != "EFI PART" {
		return nil, ErrNone
	}
	clear(sector[16:20]) // the sum is taken without itself
	if h.HeaderSize != headerSize || crc32.ChecksumIEEE(sector[:headerSize]) != h.HeaderSum {
		return nil, errors.New("partition table: its header does not agree with its checksum")
	}
	if int(h.EntrySize) != size || h.Entries > mostEntries {
		return nil, fmt.Errorf("partition table: %d entries of %d bytes, where at most %d of %d are read", h.Entries, h.EntrySize, mostEntries, size)
	}
	table := make([]byte, int(h.Entries)*size)
	if n, err := disk.ReadAt(table, int64(h.EntriesAt)*Sector); n < len(table) {
		return nil, fmt.Errorf("partition table: %w", err)
	}
	if crc32.ChecksumIEEE(table) != h.EntriesSum {
		return nil, errors.New("partition table: its entries do not agree with their checksum")
	}
	return decode(table, int(h.Entries), size)
}

func decode(table []byte, entries, size int) ([]Partition, error) {
	var found []Partition
	for n := range entries {
		var e entry
		if _, err := binary.Decode(table[n*size:], binary.LittleEndian, &e); err != nil {
			return nil, fmt.Errorf("partition table: %w", err)
		}
		if e.Type == [16]byte{} {
			continue
		}
		if e.Last < e.First {
			return nil, fmt.Errorf("partition table: partition %d ends before it begins", n+1)
		}
		name := string(utf16.Decode(e.Name[:]))
		found = append(found, Partition{Number: n + 1, Type: identifier(e.Type), ID: identifier(e.ID),
			Start: int64(e.First) * Sector, Size: int64(e.Last-e.First+1) * Sector, Name: string(bytes.TrimRight([]byte(name), "\x00"))})
	}
	return found, nil
}

// identifier turns a GUID around, whose first three numbers are little endian on a disk.
func identifier(g [16]byte) uuid.UUID {
	return uuid.UUID{g[3], g[2], g[1], g[0], g[5], g[4], g[7], g[6], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15]}
}
