package cloud_test

import (
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

const notTheDisk = "and its content is not"

// forge makes an image with the tags, the name and the manifest of one that would be published, and other blocks:
// change alters each before it is sent; extra are blocks of zeros.
func (w *world) forge(t *testing.T, region string, like ami.Result, m ami.Manifest, file string, change func(block int32, content []byte), extra ...int32) {
	t.Helper()
	c := w.client(region)
	snapshot, err := c.Start(t.Context(), ami.StartRequest{Token: "forged", Volume: like.Volume, Tags: like.Tags})
	if err != nil {
		t.Fatal(err)
	}
	disk, blocks := request(t, file).Disk, map[int32][]byte{}
	for _, e := range m.Blocks {
		blocks[e.Block] = make([]byte, ami.BlockSize)
		if _, err := disk.ReadAt(blocks[e.Block], int64(e.Block)*ami.BlockSize); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range extra {
		blocks[block] = make([]byte, ami.BlockSize)
	}
	for i, kept := range slices.Collect(slices.Chunk(m.Encode(), ami.BlockSize)) {
		blocks[int32(m.Size/ami.BlockSize)+int32(i)] = kept
	}
	sums := sha256.New()
	for _, block := range slices.Sorted(maps.Keys(blocks)) {
		change(block, blocks[block])
		digest := ami.Digest(sha256.Sum256(blocks[block]))
		if err := c.Put(t.Context(), snapshot, block, blocks[block], digest); err != nil {
			t.Fatal(err)
		}
		sums.Write(digest[:])
	}
	if err := c.Complete(t.Context(), snapshot, len(blocks), ami.Digest(sums.Sum(nil))); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitSnapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Register(t.Context(), ami.Registration{Name: like.Name, Architecture: "amd64", Snapshot: snapshot, Volume: like.Volume, Tags: like.Tags}); err != nil {
		t.Fatal(err)
	}
}

// An image that only says that it is of the disk is neither reused nor promoted, at home and where it is copied to.
func TestForgedImage(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	m, err := ami.Scan(t.Context(), request(t, file).Disk, 2, nil)
	if err != nil {
		t.Fatal(err)
	}
	genuine := newWorld(t, twoMore()).publish(t, file)
	for name, tt := range map[string]struct {
		region string
		change func(block int32, content []byte)
		extra  []int32
		want   string
	}{
		"one byte of one block": {home, func(block int32, content []byte) { content[77] ^= map[int32]byte{9: 1}[block] }, nil, "block 9 of snapshot"},
		"a block more":          {home, func(block int32, content []byte) { content[0] |= map[int32]byte{5: 1}[block] }, []int32{5}, "block 5 of snapshot"},
		"the same":              {home, func(int32, []byte) {}, nil, ""},
		"a block of zeros more": {home, func(int32, []byte) {}, []int32{5}, ""},
		"a copy":                {away, func(block int32, content []byte) { content[77] ^= map[int32]byte{9: 1}[block] }, nil, "block 9 of snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, twoMore())
			w.forge(t, tt.region, genuine, m, file, tt.change, tt.extra...)
			_, err := w.ship(t, file, func(j *ami.Pipeline) {
				j.Copies, j.Channel = []ami.Target{{Region: away}}, "stable"
			})
			if tt.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), notTheDisk) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("it ended with %v", err)
			}
			for _, region := range []string{home, away} {
				if p, ok := w.account.SSMIn(region).Parameter("/hardtack/stable/image-id"); ok {
					t.Errorf("the channel in %s names %s", region, p.Value)
				}
			}
		})
	}
}
