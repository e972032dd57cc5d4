package main_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
)

// packerTool is Packer with this plugin installed; the test is skipped where there is none.
func packerTool(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	packerBinary := os.Getenv("HARDTACK_PACKER")
	if packerBinary == "" {
		var err error
		if packerBinary, err = exec.LookPath("packer"); err != nil {
			t.Skip("no packer on PATH, and HARDTACK_PACKER names none (scripts/tool packer builds one)")
		}
	}
	env := append(os.Environ(), "CHECKPOINT_DISABLE=1", "PACKER_PLUGIN_PATH="+t.TempDir(), "PACKER_CONFIG_DIR="+t.TempDir())
	packer := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), packerBinary, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := packer("plugins", "install", "--path", binary, "github.com/hardtack/hardtack"); err != nil {
		t.Fatalf("installing the plugin: %v\n%s", err, out)
	}
	return packer
}

// smallRelease is a lock with the components and paths of the plugin's own, and a mirror that has a few
// bytes for each: everything of a build but the weight.
func smallRelease(t *testing.T) (lock, mirror string) {
	t.Helper()
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	small := *full
	small.Components = nil
	for _, c := range full.Components {
		var downloads []component.Download
		for _, f := range c.Files {
			content := "#!/bin/sh\n# " + f.Name + "\n"
			sum := sha256.Sum256([]byte(content))
			path := c.Name + "/" + f.Name
			put(t, filepath.Join(dir, "example.com", path), content)
			downloads = append(downloads, component.Download{URL: "https://example.com/" + path, As: f.Name, Size: int64(len(content)),
				Digest: "sha256:" + hex.EncodeToString(sum[:]), Published: "https://example.com/"})
		}
		c.Modules = nil
		c.Release = map[string][]component.Download{"amd64": downloads, "arm64": downloads}
		small.Components = append(small.Components, c)
	}
	data, err := yaml.Marshal(small)
	if err != nil {
		t.Fatal(err)
	}
	lock = filepath.Join(dir, "small.lock.yaml")
	put(t, lock, string(data))
	return lock, dir
}

// The whole way: Packer, the builder, the provisioner, the disk; with the image's own units and files.
func TestPackerBuildsTheLocalTemplate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the builder needs root")
	}
	packer := packerTool(t)
	lock, mirror := smallRelease(t)
	put(t, filepath.Join(mirror, "agent"), "#!/bin/sh\n")
	digests := map[string]bool{}
	for i := range 2 {
		out := filepath.Join(t.TempDir(), fmt.Sprint("out", i))
		log, err := packer("build", "-color=false", "-var", "lock="+lock, "-var", "mirror="+mirror, "-var", "source=release",
			"-var", "agent_path="+filepath.Join(mirror, "agent"), "-var", "output="+out, "../../images/local.pkr.hcl")
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		for _, name := range []string{"hardtack.qcow2", "image.json", "sbom.cdx.json", "roles.txt"} {
			if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		var manifest bake.Manifest
		if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "image.json"))), &manifest); err != nil {
			t.Fatal(err)
		}
		digests[manifest.Tree.Digest] = true
		if strings.Contains(log, "warning") {
			t.Errorf("the build warns:\n%s", log)
		}
	}
	if len(digests) != 1 {
		t.Errorf("two builds of the same have the digests %v", digests)
	}
}
