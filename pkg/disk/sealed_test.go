//go:build linux

package disk

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/uki/ukitest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/verity"
)

// dependencies are lines of a real modules.dep (Debian 13).
const dependencies = `kernel/fs/overlayfs/overlay.ko.xz:
kernel/fs/erofs/erofs.ko.xz: kernel/lib/libcrc32c.ko.xz
kernel/lib/libcrc32c.ko.xz:
kernel/drivers/md/dm-mod.ko.xz:
kernel/drivers/md/dm-bufio.ko.xz: kernel/drivers/md/dm-mod.ko.xz
kernel/lib/reed_solomon/reed_solomon.ko.xz:
kernel/drivers/md/dm-verity.ko.xz: kernel/drivers/md/dm-bufio.ko.xz kernel/drivers/md/dm-mod.ko.xz kernel/lib/reed_solomon/reed_solomon.ko.xz
kernel/drivers/block/virtio_blk.ko.xz:
kernel/drivers/scsi/sd_mod.ko.xz: kernel/drivers/scsi/scsi_mod.ko.xz kernel/drivers/scsi/scsi_common.ko.xz
kernel/drivers/scsi/scsi_mod.ko.xz: kernel/drivers/scsi/scsi_common.ko.xz
kernel/drivers/scsi/scsi_common.ko.xz:
`

func TestInOrder(t *testing.T) {
	all := parseDependencies(dependencies)
	files, err := inOrder(all, rootModules, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{{"dm-mod", "dm-bufio"}, {"dm-bufio", "dm-verity"}, {"reed_solomon", "dm-verity"}, {"libcrc32c", "erofs"}} {
		at := func(name string) int {
			return slices.IndexFunc(files, func(f string) bool { return filepath.Base(f) == name+".ko.xz" })
		}
		if at(pair[0]) < 0 || at(pair[0]) > at(pair[1]) {
			t.Errorf("%s is not before %s in %v", pair[0], pair[1], files)
		}
	}
	if len(files) != 7 {
		t.Errorf("%d modules: %v", len(files), files)
	}
	if drivers, err := inOrder(all, driverModules, true); err != nil || len(drivers) != 4 {
		t.Errorf("drivers %v, %v", drivers, err)
	}
	delete(all, "erofs")
	delete(all, "dm_verity")
	if _, err := inOrder(all, rootModules, false); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "erofs") || !strings.Contains(err.Error(), "dm-verity") {
		t.Errorf("without erofs and dm-verity: %v", err)
	}
}

// kernelRoot is a root directory with what a sealed disk's kernel image is made of.
func kernelRoot(t *testing.T) Composer {
	t.Helper()
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := machineOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	write(m.stub, "stub")
	write("boot/vmlinuz-6.12", "kernel")
	write("boot/System.map-6.12", "map")
	write("usr/lib/os-release", "ID=debian\n")
	write("usr/lib/modules/6.12/modules.dep", dependencies)
	for _, d := range parseDependencies(dependencies) {
		write("usr/lib/modules/6.12/"+d.file, d.file)
	}
	return Composer{Root: root, Work: t.TempDir(), Options: Options{Arch: "amd64", Sealed: &Sealed{Init: []byte("init")}}}
}

// The kernel leaves the root, with what a machine has no use for.
func TestTakeKernel(t *testing.T) {
	m, err := machineOf("amd64")
	if err != nil {
		t.Fatal(err)
	}
	c := kernelRoot(t)
	parts, err := c.takeKernel(m)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{uki.OSRelease: "ID=debian\n", uki.Release: "6.12", uki.Linux: "kernel"}
	for _, s := range parts.sections {
		if text, ok := want[s.Name]; ok && string(s.Content) != text {
			t.Errorf("%s is %q", s.Name, s.Content)
		}
	}
	if len(parts.sections) != 4 || string(parts.stub) != "stub" {
		t.Errorf("%d sections, stub %q", len(parts.sections), parts.stub)
	}
	for _, dir := range []string{"boot", filepath.Dir(m.stub)} {
		if left, err := os.ReadDir(filepath.Join(c.Root, dir)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
	for _, missing := range []string{"boot/vmlinuz-6.12", m.stub, "usr/lib/os-release", "usr/lib/modules/6.12/modules.dep", "usr/lib/modules/6.12/kernel/fs/erofs/erofs.ko.xz"} {
		c := kernelRoot(t)
		if err := os.Remove(filepath.Join(c.Root, missing)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.takeKernel(m); err == nil {
			t.Errorf("taken without %s", missing)
		}
	}
}

// What a BIOS runs of a sealed disk leaves the partition table's half of the sector alone, and ends with a text that it finds.
func TestBIOSNotice(t *testing.T) {
	code := biosNotice()
	if len(code) > bootCodeSize {
		t.Errorf("%d bytes, at most %d fit", len(code), bootCodeSize)
	}
	for _, place := range []int{textPlace, textAgain} {
		at := int(code[place]) + int(code[place+1])<<8 - loadedAt
		if at < 0 || at > len(code) || string(code[at:]) != biosText {
			t.Errorf("the text of the instruction at %d is at %d", place-1, at)
		}
	}
}

func TestMovePackageDatabase(t *testing.T) {
	c := Composer{Root: t.TempDir()}
	if err := c.movePackageDatabase(); err != nil {
		t.Errorf("without one: %v", err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(c.Root, packageDatabase), 0o755), os.MkdirAll(filepath.Join(c.Root, "usr/lib"), 0o755),
		os.WriteFile(filepath.Join(c.Root, packageDatabase, "status"), []byte("Package: x\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		if err := c.movePackageDatabase(); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(filepath.Join(c.Root, packageDatabase, "status")); err != nil || string(text) != "Package: x\n" {
		t.Errorf("through the link: %q, %v", text, err)
	}
}

// keyPair writes a key and a certificate of its own, as PEM files.
func keyPair(t *testing.T) (key, certificate string) {
	t.Helper()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "db"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key, certificate = filepath.Join(dir, "db.key"), filepath.Join(dir, "db.pem")
	if err := errors.Join(os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600),
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return key, certificate
}

// A signature is good to sbverify, for this key alone and not after a change.
func TestSign(t *testing.T) {
	for _, tool := range []string{"sbsign", "sbverify"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: install Debian's package sbsigntool", err)
		}
	}
	image, err := uki.Make(ukitest.Stub(t), []uki.Section{{Name: uki.Linux, Content: []byte("kernel")}, {Name: uki.CommandLine, Content: []byte("roothash=1")}})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "image.efi")
	if err := os.WriteFile(name, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Sealed{}).sign(t.Context(), name); err != nil {
		t.Errorf("without a key: %v", err)
	}
	key, certificate := keyPair(t)
	_, other := keyPair(t)
	verifies := func(certificate string) bool {
		t.Helper()
		return exec.CommandContext(t.Context(), "sbverify", "--cert", certificate, name).Run() == nil
	}
	if verifies(certificate) {
		t.Error("it is good without a signature")
	}
	if err := (Sealed{Key: key, Certificate: certificate}).sign(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if !verifies(certificate) || verifies(other) {
		t.Errorf("good to its certificate %v, and to another %v", verifies(certificate), verifies(other))
	}
	signed, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, bytes.Replace(signed, []byte("roothash=1"), []byte("roothash=2"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if verifies(certificate) {
		t.Error("it is good with another root hash")
	}
}

// TestSealedTexts holds what is written for a sealed disk.
func TestSealedTexts(t *testing.T) {
	l, err := Plan(2<<30, sha256.Sum256([]byte("content")))
	if err != nil {
		t.Fatal(err)
	}
	hash := verity.Hash(sha256.Sum256([]byte("root")))
	l.RootSize, l.Root = 100*mib, hash.Data()
	s := seal{Layout: l, tree: l.RootStart + l.RootSize, treeSize: mib, hash: hash}
	var got []string
	for _, arch := range []string{"amd64", "arm64"} {
		m, err := machineOf(arch)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, "--- sfdisk "+arch, s.table(m), "--- kernel "+arch, commandLine("roothash="+hash.String(), m, "quiet"))
	}
	golden.Assert(t, strings.Join(append(got, "--- repart", l.repartState()), "\n"), "sealed.golden")
}
