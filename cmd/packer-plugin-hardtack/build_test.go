package main_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/provenance"
)

// packerWith is Packer in an environment; the test is skipped without Packer.
func packerWith(t *testing.T, env ...string) func(args ...string) (string, error) {
	t.Helper()
	packerBinary := os.Getenv("HARDTACK_PACKER")
	if packerBinary == "" {
		var err error
		if packerBinary, err = exec.LookPath("packer"); err != nil {
			t.Skip("no packer on PATH, and HARDTACK_PACKER names none (scripts/tool packer builds one)")
		}
	}
	env = append(env, "CHECKPOINT_DISABLE=1", "PACKER_CONFIG_DIR="+t.TempDir())
	return func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), packerBinary, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// packerTool is Packer with this plugin installed.
func packerTool(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	packer := packerWith(t, append(os.Environ(), "PACKER_PLUGIN_PATH="+t.TempDir())...)
	if out, err := packer("plugins", "install", "--path", binary, "github.com/hardtack/hardtack"); err != nil {
		t.Fatalf("installing the plugin: %v\n%s", err, out)
	}
	return packer
}

// The whole way: Packer, the builder, the provisioner, the disk; with the image's own units and files.
func TestPackerBuildsTheLocalTemplate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the builder needs root")
	}
	account := standIn(t)
	packer := packerTool(t)
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	lock, mirror := baketest.SmallRelease(t, full)
	put(t, filepath.Join(mirror, "agent"), "#!/bin/sh\n")
	digests, statements := map[string]bool{}, map[string]bool{}
	for i := range 2 {
		out := filepath.Join(t.TempDir(), fmt.Sprint("out", i))
		log, err := packer("build", "-color=false", "-var", "lock="+lock, "-var", "mirror="+mirror, "-var", "source=release",
			"-var", "agent_path="+filepath.Join(mirror, "agent"), "-var", "reader_path="+filepath.Join(mirror, "agent"), "-var", "output="+out, "-var", fmt.Sprint("publish=", i == 1), "-var", "channel=testing",
			"../../images/local.pkr.hcl")
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		if calls := account.Calls(); i == 0 && len(calls) > 0 {
			t.Errorf("a build that publishes nothing has called AWS: %v", calls)
		}
		for _, name := range []string{"hardtack.qcow2", "image.json", "sbom.cdx.json", "roles.txt", provenance.File} {
			if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", name, err)
			}
		}
		var manifest bake.Manifest
		if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "image.json"))), &manifest); err != nil {
			t.Fatal(err)
		}
		digests[manifest.Tree.Digest] = true
		statements[read(t, filepath.Join(out, provenance.File))] = true
		if strings.Contains(log, "warning") {
			t.Errorf("the build warns:\n%s", log)
		}
	}
	if len(digests) != 1 {
		t.Errorf("two builds of the same have the digests %v", digests)
	}
	if len(statements) != 1 {
		t.Errorf("two builds of the same have the provenance %v", slices.Collect(maps.Keys(statements)))
	}
	images := account.Images().List()
	if len(images) != 1 || images[0].Tags["hardtack:kubernetes"] != full.Kubernetes() {
		t.Fatalf("published were %+v", images)
	}
	if p, _ := account.SSM().Parameter("/hardtack/testing/image-id"); p.Value != images[0].ID {
		t.Errorf("the channel names %q", p.Value)
	}
}
