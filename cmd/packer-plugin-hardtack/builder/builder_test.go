//go:build linux

package builder

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	packersdk "github.com/hashicorp/packer-plugin-sdk/packer"

	"github.com/hardtack/packer-plugin-hardtack/pkg/disk"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/chroot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/provenance"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// noProgram is a plugin that was built without our own programs.
func noProgram(name, arch string) ([]byte, error) {
	return nil, errors.New("no " + name + " for " + arch)
}

func prepare(t *testing.T, config map[string]any) (*Builder, error) {
	t.Helper()
	b := New(fstest.MapFS{"packages": {Data: []byte("udev\n")}}, noProgram)
	config["packer_build_name"] = "unit"
	_, _, err := b.Prepare(config)
	return b, err
}

func TestDefaults(t *testing.T) {
	b, err := prepare(t, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if got := b.config.image(disk.QCOW2); got != "output-unit/hardtack.qcow2" {
		t.Errorf("image: %s", got)
	}
	if size, err := b.config.size(); size != 8<<30 || err != nil {
		t.Errorf("size: %d %v", size, err)
	}
	if b.config.Suite != "trixie" || !slices.Equal(b.config.Formats, []string{"qcow2"}) || !filepath.IsAbs(b.config.BaseCache) {
		t.Errorf("got %+v", b.config)
	}
}

func TestPrepareReportsEverything(t *testing.T) {
	_, err := prepare(t, map[string]any{
		"suite": "--evil", "arch": "vax", "packages": []string{"Bad Name", "good"}, "formats": []string{"vmdk"},
		"image_name": "../x", "kernel_arguments": []string{"a\nb"}, "disk_size": "many", "source_date_epoch": -1,
		"offline": true, "base_cache": "off",
	})
	if err == nil {
		t.Fatal("everything is wrong, and it was taken")
	}
	for _, want := range []string{
		`suite "--evil"`, `"vax"`, `"Bad Name"`, `"vmdk"`, `"../x"`, "line break", `disk_size "many"`, "source_date_epoch -1", "offline",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not mention %s:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), `"good"`) {
		t.Errorf("mentions a package that is right:\n%v", err)
	}
}

func TestPrepareRoot(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none.pem")
	text := filepath.Join(dir, "text.pem")
	if err := os.WriteFile(text, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config map[string]any
		want   string
	}{
		"another word":   {map[string]any{"root": "readonly"}, `root "readonly"`},
		"an initrd":      {map[string]any{"root": "sealed", "initrd": true}, "initrd: a sealed root has"},
		"half a pair":    {map[string]any{"root": "sealed", "secure_boot_key": text}, "only one of them is set"},
		"a key for ext4": {map[string]any{"secure_boot_key": text, "secure_boot_certificate": text}, `root = "sealed"`},
		"no file":        {map[string]any{"root": "sealed", "secure_boot_key": none, "secure_boot_certificate": none}, "no such file"},
		"what is no key": {map[string]any{"root": "sealed", "secure_boot_key": text, "secure_boot_certificate": text}, "secure_boot_certificate " + text + ": tls: failed to find any PEM data"},
		"sealed":         {map[string]any{"root": "sealed"}, ""},
		"not known yet":  {map[string]any{"root": unknown, "secure_boot_key": unknown, "secure_boot_certificate": unknown}, ""},
		"the default":    {map[string]any{"root": "writable"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := prepare(t, c.config)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A plugin without the program of a sealed disk says so before anything is fetched.
func TestNoInit(t *testing.T) {
	for root, want := range map[string]string{"sealed": "no hardtack-init for arm64", "writable": ""} {
		b, err := prepare(t, map[string]any{"root": root, "arch": "arm64"})
		if err != nil {
			t.Fatal(err)
		}
		err = (&stepPreflight{&job{config: &b.config, program: b.program}}).checkProgram()
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", root, err, want)
		}
	}
}

// A machine that runs no programs of the disk's architecture says so before anything is fetched, and how it would.
func TestForeign(t *testing.T) {
	foreign := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for name, c := range map[string]struct{ arch, program, want string }{
		"its own":      {runtime.GOARCH, "not asked for", ""},
		"runs":         {foreign, "#!/bin/sh\n[ $1 = help ]\n", ""},
		"does not run": {foreign, "\x7fELF of another machine", "this machine does not run programs of " + foreign},
		"fails":        {foreign, "#!/bin/sh\nexit 1\n", "apt-get install qemu-user-static binfmt-support"},
	} {
		t.Run(name, func(t *testing.T) {
			program := func(string, string) ([]byte, error) { return []byte(c.program), nil }
			err := (&stepPreflight{&job{config: &Config{Base: Base{Arch: c.arch}}, program: program}}).checkForeign(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestPrepareWaitsForUnknownValues(t *testing.T) {
	if _, err := prepare(t, map[string]any{
		"suite": unknown, "arch": unknown, "disk_size": unknown, "packages": []string{unknown}, "formats": []string{unknown},
	}); err != nil {
		t.Error(err)
	}
}

func TestPrepareRefusesUnknownNames(t *testing.T) {
	if _, err := prepare(t, map[string]any{"siute": "trixie"}); err == nil || !strings.Contains(err.Error(), "siute") {
		t.Errorf("got %v, want the name that is not known", err)
	}
}

func TestMissingTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := checkTools(&Config{Base: Base{Arch: "amd64"}})
	if err == nil {
		t.Fatal("an empty PATH has every tool")
	}
	for _, want := range []string{"mmdebstrap", "sfdisk", "apt-get install coreutils dash dosfstools fdisk", "util-linux", "qemu-utils"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not mention %s: %v", want, err)
		}
	}
}

func TestOutputIsNotReplaced(t *testing.T) {
	out := t.TempDir()
	b, err := prepare(t, map[string]any{"output_directory": out})
	if err != nil {
		t.Fatal(err)
	}
	step := &stepPreflight{&job{config: &b.config}}
	if err := step.checkOutput(); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	if err := os.WriteFile(b.config.image(disk.QCOW2), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := step.checkOutput(); err == nil || !strings.Contains(err.Error(), "-force") {
		t.Errorf("got %v, want a refusal that names -force", err)
	}
	b.config.PackerForce = true
	if err := step.checkOutput(); err != nil {
		t.Errorf("forced: %v", err)
	}
}

func TestPublish(t *testing.T) {
	work, out := t.TempDir(), filepath.Join(t.TempDir(), "new", "out")
	b, err := prepare(t, map[string]any{"output_directory": out, "formats": []string{"raw", "qcow2"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(work, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "disk/disk.raw"), []byte("raw"), 0o644); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	j := &job{config: &b.config, work: work, ui: &packersdk.BasicUi{Reader: strings.NewReader(""), Writer: &said, ErrorWriter: &said}}
	if err := (&stepPublish{j}).publish(); err == nil {
		t.Fatal("a missing qcow2 was published")
	}
	if _, err := os.Stat(b.config.image(disk.Raw)); err == nil {
		t.Error("half of the images are in place after an error")
	}
}

// A description in the image that is a link must not bring back, readable by all, what only root may read here.
func TestAttackDescriptionIsALinkToTheHost(t *testing.T) {
	secret, dir, work, out := filepath.Join(t.TempDir(), "shadow"), t.TempDir(), t.TempDir(), t.TempDir()
	at := filepath.Join(dir, bake.Descriptions()[0])
	if err := errors.Join(os.WriteFile(secret, []byte("root:$y$secret"), 0o600), os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(secret, at)); err != nil {
		t.Fatal(err)
	}
	root, err := chroot.New(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := prepare(t, map[string]any{"output_directory": out})
	if err != nil {
		t.Fatal(err)
	}
	ui := &packersdk.BasicUi{Reader: strings.NewReader(""), Writer: io.Discard, ErrorWriter: io.Discard}
	if err := (&stepPublish{&job{config: &b.config, work: work, root: root, ui: ui}}).describe(); err == nil {
		t.Error("the link was followed")
	}
	if left, err := os.ReadDir(out); err != nil || len(left) != 0 {
		t.Errorf("brought back: %v, %v", left, err)
	}
}

// What a baked image leaves beside its disk, as the files themselves say.
func TestDescribe(t *testing.T) {
	dir, work, out := t.TempDir(), t.TempDir(), t.TempDir()
	image := filepath.Join(out, "hardtack.raw")
	manifest := filepath.Join(dir, bake.ManifestPath)
	pair, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := pki.NewAuthority("db", pair, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text, err := pki.EncodeKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, signed := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem"), pki.EncodeCertificate(signer.Certificate)
	if err := errors.Join(os.WriteFile(key, text, 0o600), os.MkdirAll(filepath.Dir(manifest), 0o755), os.WriteFile(manifest, []byte(`{"schema": 1, "tree": {"digest": "12"}}`), 0o644),
		os.WriteFile(image, []byte("disk"), 0o644), os.WriteFile(certificate, signed, 0o644)); err != nil {
		t.Fatal(err)
	}
	root, err := chroot.New(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := prepare(t, map[string]any{"output_directory": out, "mirror": "http://mirror.invalid/debian", "source_date_epoch": 7})
	if err != nil {
		t.Fatal(err)
	}
	b.config.SecureBootCertificate, b.config.SecureBootKey = certificate, key
	ui := &packersdk.BasicUi{Reader: strings.NewReader(""), Writer: io.Discard, ErrorWriter: io.Discard}
	j := &job{config: &b.config, work: work, root: root, ui: ui, images: []string{image}, disk: disk.Result{RootHash: "34", EFIPartition: "56"}}
	if err := (&stepPublish{j}).describe(); err != nil {
		t.Fatal(err)
	}
	baked, err := bake.ReadManifest(filepath.Join(out, "image.json"))
	if err != nil || baked.RootHash != "34" || baked.EFIPartition != "56" || !bytes.Equal(baked.SecureBoot, signer.Certificate.Raw) {
		t.Errorf("image.json: %v, root hash %q, EFI partition %q, certificate %x", err, baked.RootHash, baked.EFIPartition, baked.SecureBoot)
	}
	text, err = os.ReadFile(filepath.Join(out, provenance.File))
	if err != nil {
		t.Fatal(err)
	}
	described, err := os.ReadFile(filepath.Join(out, "image.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("%x", sha256.Sum256([]byte("disk"))), fmt.Sprintf("%x", sha256.Sum256(described)), fmt.Sprintf("sha256:%x", sha256.Sum256(signed)),
		`"hardtackTree": "12"`, `"dmVeritySha256": "34"`, `"source_date_epoch": 7`, `"mirror": "http://mirror.invalid/debian"`, `"suite": "trixie"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, secret := range []string{dir, out, work} {
		if strings.Contains(string(text), secret) {
			t.Errorf("%s, a path of this machine, is in\n%s", secret, text)
		}
	}
}

func TestArchiveAndExtract(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "sub/data": 0o640, "skipped/x": 0o644} {
		file := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("tool", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive(w, src, []string{"skipped"})) }()
	if err := extract(r, dst, nil); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dst, "tool")); err != nil || info.Mode() != 0o755 {
		t.Errorf("tool: %v %v", info, err)
	}
	if data, err := os.ReadFile(filepath.Join(dst, "sub/data")); err != nil || string(data) != "sub/data" {
		t.Errorf("sub/data: %q %v", data, err)
	}
	if target, err := os.Readlink(filepath.Join(dst, "link")); err != nil || target != "tool" {
		t.Errorf("link: %q %v", target, err)
	}
	if _, err := os.Stat(filepath.Join(dst, "skipped")); err == nil {
		t.Error("an excluded directory was copied")
	}
}
