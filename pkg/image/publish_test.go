package image_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image"
)

func TestDescribe(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sealed := put("sealed.json", `{"schema": 1, "architecture": "arm64", "kubernetes": "v1.36.3", "rootHash": "0f", "efiPartitionSha256": "0e", "secureBootCertificate": "AQI="}`)
	writable := put("writable.json", `{"schema": 1, "architecture": "amd64", "kubernetes": "v1.36.3"}`)
	for name, tt := range map[string]struct {
		manifest, asked, architecture, rootHash string
		uefi                                    bool
	}{
		"sealed":                    {sealed, "", "arm64", "0f", true},
		"writable":                  {writable, "", "amd64", "", false},
		"an architecture was asked": {writable, "arm64", "arm64", "", false},
	} {
		r := ami.Request{Architecture: tt.asked}
		if err := image.Describe(&r, tt.manifest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		hash, tagged := r.Facts["root-hash"]
		if signed := string(r.SecureBoot) == "\x01\x02"; signed != tt.uefi || !signed && r.SecureBoot != nil {
			t.Errorf("%s: the certificate for Secure Boot is %q", name, r.SecureBoot)
		}
		if efi, tagged := r.Facts["efi-sha256"]; tagged != tt.uefi || tagged && efi != "0e" {
			t.Errorf("%s: the EFI partition is %q", name, efi)
		}
		if r.Architecture != tt.architecture || r.UEFI != tt.uefi || hash != tt.rootHash || tagged != tt.uefi || r.Facts["kubernetes"] != "v1.36.3" {
			t.Errorf("%s: %+v", name, r)
		}
	}
	nothing := filepath.Join(dir, "nothing.json")
	if err := image.Describe(&ami.Request{}, nothing); !errors.Is(err, image.ErrNoArchitecture) {
		t.Errorf("nothing says the architecture: %v", err)
	}
	if err := image.Describe(&ami.Request{Architecture: "amd64"}, nothing); err != nil {
		t.Errorf("only the request says the architecture: %v", err)
	}
	if err := image.Describe(&ami.Request{Architecture: "amd64"}, put("broken.json", "{")); err == nil {
		t.Error("a description that cannot be read was taken")
	}
}
