package main

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
)

// Each digest that is another is named; one that nobody has said is not compared.
func TestVerificationDiffers(t *testing.T) {
	v := verification{Verified: disk.Verified{RootHash: "0f", EFIPartition: "0e"}}
	for name, c := range map[string]struct{ rootHash, efi, want string }{
		"the same":           {"0f", "0e", ""},
		"without the second": {"0f", "", ""},
		"another root":       {"ff", "0e", `root hash is 0f, and not "ff": so`},
		"no root":            {"", "", `root hash is 0f, and not "": so`},
		"another kernel":     {"0f", "ee", "EFI partition is 0e, and not ee: the kernel"},
		"both":               {"ff", "ee", "not \"ff\": so\nthe sha256 of its EFI partition is 0e"},
	} {
		err := v.differs(c.rootHash, c.efi, "so")
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
