package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
)

// access is a read or a write of a machine's disk.
type access struct {
	at    time.Time
	write bool
	// offset and size are in bytes.
	offset, size int64
}

// The events of QEMU's trace-events (block/ of its source), as its log writes them with -msg timestamp=on: process, time and event.
// A machine's accesses are those of the block backend (blk_co_preadv): below it the same read is seen again in the overlay and in
// the image, and with whole clusters where the machine has written a part of one.
var (
	tracedEvent  = regexp.MustCompile(`^\d+@(\d+)\.(\d{6}):(\w+) (.*)$`)
	tracedOpen   = regexp.MustCompile(`^bs (0x[0-9a-f]+) filename "(.*)" flags 0x[0-9a-f]+ format_name "(\w+)"$`)
	tracedAccess = regexp.MustCompile(`^blk 0x[0-9a-f]+ bs (0x[0-9a-f]+) offset (\d+) bytes (\d+) flags 0x[0-9a-f]+$`)
)

// readTrace returns the accesses of the disk whose overlay (qcow2) is named, in their order. A last line without its end is not
// read, since QEMU may be writing it.
func readTrace(trace io.Reader, overlay string) ([]access, error) {
	var all []access
	of := map[string]bool{} // by QEMU's address of a disk, whether it is the overlay; the address of a closed one is used again
	lines := bufio.NewReader(trace)
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		bad := func(err error) error { return fmt.Errorf("line %d of QEMU's trace, %q: %w", n, line, err) }
		event := tracedEvent.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if event == nil {
			return nil, bad(errors.New("no event with its time"))
		}
		switch event[3] {
		case "bdrv_open_common":
			open := tracedOpen.FindStringSubmatch(event[4])
			if open == nil {
				return nil, bad(errors.New("no disk that is opened"))
			}
			of[open[1]] = open[2] == overlay && open[3] == "qcow2"
		case "blk_co_preadv", "blk_co_pwritev":
			a, disk, err := parseAccess(event)
			if err != nil {
				return nil, bad(err)
			}
			if of[disk] {
				all = append(all, a)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("QEMU's trace has no access of %s", overlay)
	}
	return all, nil
}

// parseAccess also returns QEMU's address of the disk.
func parseAccess(event []string) (access, string, error) {
	fields := tracedAccess.FindStringSubmatch(event[4])
	if fields == nil {
		return access{}, "", errors.New("no read or write")
	}
	var numbers [4]int64
	for i, text := range []string{event[1], event[2], fields[2], fields[3]} {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return access{}, "", err
		}
		numbers[i] = n
	}
	return access{time.UnixMicro(numbers[0]*1e6 + numbers[1]), event[3] == "blk_co_pwritev", numbers[2], numbers[3]}, fields[1], nil
}

// reads is what a machine has read of its disk.
type reads struct {
	Requests int `json:"requests"`
	// Bytes counts all reads, also of what was read or written before.
	Bytes int64 `json:"bytes"`
	// Cold counts each byte of the image that was read, once; what the machine had written before is none. It is in sectors.
	Cold int64 `json:"cold_bytes"`
	// Blocks are the blocks of a snapshot in which they are: ami.BlockSize each.
	Blocks int `json:"blocks"`
	// Partitions has Cold for each partition of the image, by name; outside of them it is "none".
	Partitions map[string]int64 `json:"cold_bytes_by_partition"`
}

// block has a bit for each sector of a block.
type block struct {
	read, written [ami.BlockSize / gpt.Sector / 64]uint64
}

// countReads counts the reads of a disk up to a time. The blocks that were touched are by their place on the disk, in ami.BlockSize.
func countReads(accesses []access, until time.Time, table []gpt.Partition) (r reads, blocks map[int64]*block) {
	r, blocks = reads{Partitions: map[string]int64{}}, map[int64]*block{}
	for _, a := range accesses {
		if a.at.After(until) {
			continue
		}
		if !a.write {
			r.Requests++
			r.Bytes += a.size
		}
		for sector := a.offset / gpt.Sector; sector*gpt.Sector < a.offset+a.size; sector++ {
			number := sector * gpt.Sector / ami.BlockSize
			b := blocks[number]
			if b == nil {
				b = &block{}
				blocks[number] = b
			}
			within := sector % (ami.BlockSize / gpt.Sector)
			bit := uint64(1) << (within % 64)
			switch word := within / 64; {
			case a.write:
				b.written[word] |= bit
			case (b.written[word]|b.read[word])&bit == 0:
				b.read[word] |= bit
				r.Cold += gpt.Sector
				r.Partitions[partitionAt(table, sector*gpt.Sector)] += gpt.Sector
			}
		}
	}
	for _, b := range blocks {
		if b.sectors() > 0 {
			r.Blocks++
		}
	}
	return r, blocks
}

// sectors is how many of the block's were read cold.
func (b *block) sectors() int {
	n := 0
	for _, word := range b.read {
		n += bits.OnesCount64(word)
	}
	return n
}

func partitionAt(table []gpt.Partition, offset int64) string {
	for _, p := range table {
		if offset >= p.Start && offset < p.Start+p.Size {
			return p.Name
		}
	}
	return "none"
}

const overlayOpened = `7@100.000000:bdrv_open_common bs 0xa filename "/m/disk.qcow2" flags 0x2 format_name "file"
7@100.000001:bdrv_open_common bs 0xb filename "/m/disk.qcow2" flags 0x2 format_name "qcow2"
7@100.000002:bdrv_open_common bs 0xc filename "/build/image.qcow2" flags 0x2 format_name "qcow2"
`

func TestColdTrace(t *testing.T) {
	t.Parallel()
	// A disk with two partitions that share the first block of a snapshot, and end within the third.
	table := []gpt.Partition{{Name: "esp", Start: 4096, Size: 4096}, {Name: "root", Start: 8192, Size: 2*ami.BlockSize + 4096}}
	read := func(at, disk string, offset, size int) string {
		return fmt.Sprintf("7@%s:blk_co_preadv blk 0x1 bs %s offset %d bytes %d flags 0x0\n", at, disk, offset, size)
	}
	write := func(at string, offset, size int) string {
		return fmt.Sprintf("7@%s:blk_co_pwritev blk 0x1 bs 0xb offset %d bytes %d flags 0x0\n", at, offset, size)
	}
	for name, c := range map[string]struct {
		trace string
		want  reads
		fails string
	}{
		"one read": {
			read("101.000000", "0xb", 4096, 1024), reads{1, 1024, 1024, 1, map[string]int64{"esp": 1024}}, ""},
		"the same twice, and a part of it": {
			read("101.000000", "0xb", 4096, 1024) + read("101.000001", "0xb", 4096, 1024) + read("101.000002", "0xb", 4608, 512),
			reads{3, 2560, 1024, 1, map[string]int64{"esp": 1024}}, ""},
		"over the end of a partition": {
			read("101.000000", "0xb", 7680, 1024), reads{1, 1024, 1024, 1, map[string]int64{"esp": 512, "root": 512}}, ""},
		"over the end of a block": {
			read("101.000000", "0xb", ami.BlockSize-512, 1024), reads{1, 1024, 1024, 2, map[string]int64{"root": 1024}}, ""},
		"in no partition": {
			read("101.000000", "0xb", 0, 512), reads{1, 512, 512, 1, map[string]int64{"none": 512}}, ""},
		"a part of a sector": {
			read("101.000000", "0xb", 4100, 8), reads{1, 8, 512, 1, map[string]int64{"esp": 512}}, ""},
		"what the machine has written": {
			write("101.000000", 4096, 512) + read("101.000001", "0xb", 4096, 512) + read("102.000000", "0xb", 8192, 512),
			reads{2, 1024, 512, 1, map[string]int64{"root": 512}}, ""},
		"a written part of what is read": {
			write("101.000000", 4096, 512) + read("101.000001", "0xb", 4096, 2048),
			reads{1, 2048, 1536, 1, map[string]int64{"esp": 1536}}, ""},
		"written after it was read": {
			read("101.000000", "0xb", 4096, 512) + write("101.000001", 4096, 512),
			reads{1, 512, 512, 1, map[string]int64{"esp": 512}}, ""},
		"a block of which the machine reads only what it has written": {
			write("101.000000", ami.BlockSize, 512) + read("101.000001", "0xb", ami.BlockSize, 512) + read("101.000002", "0xb", 4096, 512),
			reads{2, 1024, 512, 1, map[string]int64{"esp": 512}}, ""},
		"after the machine is ready": {
			read("101.000000", "0xb", 4096, 512) + read("200.000000", "0xb", 4608, 512) + read("200.000001", "0xb", 5120, 512),
			reads{2, 1024, 1024, 1, map[string]int64{"esp": 1024}}, ""},
		"other disks, and what is below the overlay": {
			read("101.000000", "0xa", 4096, 512) + read("101.000000", "0xc", 4096, 512) + read("101.000000", "0xd", 4096, 512) + read("101.000000", "0xb", 8192, 512),
			reads{1, 512, 512, 1, map[string]int64{"root": 512}}, ""},
		"an address that is used again": {
			read("101.000000", "0xb", 8192, 512) + "7@102.000000:bdrv_open_common bs 0xb filename \"/m/efivars.fd\" flags 0x2 format_name \"raw\"\n" + read("103.000000", "0xb", 4096, 512),
			reads{1, 512, 512, 1, map[string]int64{"root": 512}}, ""},
		"a line that is being written": {
			read("101.000000", "0xb", 8192, 512) + "7@102.000000:blk_co_preadv blk 0x1 bs 0xb offset 40", reads{1, 512, 512, 1, map[string]int64{"root": 512}}, ""},
		"another event": {
			read("101.000000", "0xb", 8192, 512) + "7@102.000000:blk_root_attach child 0x1 blk 0x1 bs 0xb\n", reads{1, 512, 512, 1, map[string]int64{"root": 512}}, ""},
		"no access":        {"", reads{}, "no access of /m/disk.qcow2"},
		"no time":          {"blk_co_preadv blk 0x1 bs 0xb offset 0 bytes 512 flags 0x0\n", reads{}, `line 4 of QEMU's trace`},
		"another form":     {"7@102.000000:blk_co_preadv bs 0xb offset 0 bytes 512\n", reads{}, "no read or write"},
		"no number":        {"7@102.000000:blk_co_preadv blk 0x1 bs 0xb offset 99999999999999999999 bytes 512 flags 0x0\n", reads{}, "value out of range"},
		"no disk's opened": {"7@102.000000:bdrv_open_common bs 0xb\n", reads{}, "no disk that is opened"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			accesses, err := readTrace(strings.NewReader(overlayOpened+c.trace), "/m/disk.qcow2")
			if c.fails != "" {
				assert.ErrorContains(t, err, c.fails)
				return
			}
			assert.NilError(t, err)
			got, _ := countReads(accesses, time.Unix(200, 0), table)
			assert.DeepEqual(t, got, c.want)
		})
	}
}
