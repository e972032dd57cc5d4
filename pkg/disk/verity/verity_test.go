package verity

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// blocksOf returns n blocks of data that is the same every time.
func blocksOf(t *testing.T, n int) []byte {
	t.Helper()
	data := make([]byte, n*BlockSize)
	if _, err := rand.NewChaCha8([32]byte{1}).Read(data); err != nil {
		t.Fatal(err)
	}
	return data
}

var printedHash = regexp.MustCompile(`Root hash:\s+([0-9a-f]{64})`)

// TestVeritysetup compares trees of one, two and three levels with those of veritysetup, byte by byte.
func TestVeritysetup(t *testing.T) {
	program, err := exec.LookPath("veritysetup")
	if err != nil {
		t.Skipf("%v: install Debian's package cryptsetup-bin", err)
	}
	for _, n := range []int{1, 2, 128, 129, 128*128 + 1} {
		for name, salt := range map[string][]byte{"salt": []byte("salt and pepper"), "no salt": nil} {
			t.Run(name+" "+strconv.Itoa(n), func(t *testing.T) {
				dir := t.TempDir()
				data, tree := filepath.Join(dir, "data"), filepath.Join(dir, "tree")
				content := blocksOf(t, n)
				if err := os.WriteFile(data, content, 0o600); err != nil {
					t.Fatal(err)
				}
				s := Superblock{ID: uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), Blocks: uint64(n), Salt: salt}
				saltText := "-"
				if salt != nil {
					saltText = strings.Fields(s.Table(Hash{}, "d", "t"))[9]
				}
				out, err := exec.CommandContext(t.Context(), program, "format", "--uuid="+s.ID.String(), "--salt="+saltText, data, tree).CombinedOutput()
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				theirs, err := os.ReadFile(tree)
				if err != nil {
					t.Fatal(err)
				}
				hash, ours, err := Build(t.Context(), s, bytes.NewReader(content))
				if err != nil {
					t.Fatal(err)
				}
				if want := printedHash.FindSubmatch(out); want == nil || string(want[1]) != hash.String() {
					t.Errorf("root hash %s, and veritysetup says\n%s", hash, out)
				}
				if !bytes.Equal(ours, theirs) {
					t.Errorf("a tree of %d bytes differs from veritysetup's of %d", len(ours), len(theirs))
				}
				if uint64(len(ours)) != TreeBlocks(s.Blocks)*BlockSize {
					t.Errorf("%d bytes, and TreeBlocks says %d blocks", len(ours), TreeBlocks(s.Blocks))
				}
				// And what we have made is good to the other.
				if err := os.WriteFile(tree, ours, 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.CommandContext(t.Context(), program, "verify", data, tree, hash.String()).CombinedOutput(); err != nil {
					t.Errorf("veritysetup verify: %v\n%s", err, out)
				}
			})
		}
	}
}

// Each bit counts: another block, another salt, another length.
func TestEveryByteCounts(t *testing.T) {
	content := blocksOf(t, 300)
	s := Superblock{Blocks: 300, Salt: []byte("s")}
	build := func(s Superblock, data []byte) Hash {
		t.Helper()
		h, _, err := Build(t.Context(), s, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	want := build(s, content)
	for _, at := range []int{0, 4095, 4096, 299*BlockSize + 4095} {
		other := bytes.Clone(content)
		other[at] ^= 1
		if build(s, other) == want {
			t.Errorf("byte %d does not count", at)
		}
	}
	if build(Superblock{Blocks: 300, Salt: []byte("t")}, content) == want || build(Superblock{Blocks: 299, Salt: s.Salt}, content) == want {
		t.Error("the salt or the length does not count")
	}
	if _, _, err := Build(t.Context(), Superblock{Blocks: 301}, bytes.NewReader(content)); err == nil {
		t.Error("data that ends too early was taken")
	}
}

func TestSuperblock(t *testing.T) {
	s := Superblock{ID: uuid.New(), Blocks: 77, Salt: []byte("x")}
	block, err := s.Encode()
	if err != nil || len(block) != BlockSize {
		t.Fatalf("%d bytes, %v", len(block), err)
	}
	back, err := ReadSuperblock(bytes.NewReader(block))
	if err != nil || back.ID != s.ID || back.Blocks != s.Blocks || !bytes.Equal(back.Salt, s.Salt) {
		t.Errorf("%+v became %+v, %v", s, back, err)
	}
	if _, err := (Superblock{Salt: make([]byte, 257)}).Encode(); err == nil {
		t.Error("a salt of 257 bytes was taken")
	}
	for name, change := range map[string]func(b []byte){
		"signature": func(b []byte) { b[0] = 'V' },
		"version":   func(b []byte) { b[8] = 2 },
		"algorithm": func(b []byte) { b[35] = '1' },
		"blocks":    func(b []byte) { b[65] = 2 },
		"salt":      func(b []byte) { b[81] = 2 },
		"no data":   func(b []byte) { b[72] = 0 },
		"too much":  func(b []byte) { b[79] = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(block)
			change(b)
			if got, err := ReadSuperblock(bytes.NewReader(b)); err == nil {
				t.Errorf("taken as %+v", got)
			}
		})
	}
	if _, err := ReadSuperblock(bytes.NewReader(block[:100])); err == nil {
		t.Error("half a superblock was taken")
	}
}

func TestParseHash(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 4)
	h, err := ParseHash(text)
	if err != nil || h.String() != text {
		t.Errorf("%s, %v", h, err)
	}
	if got := h.Data().String() + " " + h.Tree().String(); got != "01234567-89ab-cdef-0123-456789abcdef 01234567-89ab-cdef-0123-456789abcdef" {
		t.Error(got)
	}
	for _, wrong := range []string{"", text[:62], text + "00", strings.Repeat("g", 64)} {
		if _, err := ParseHash(wrong); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}
