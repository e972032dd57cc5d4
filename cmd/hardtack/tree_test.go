package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
)

func TestTree(t *testing.T) {
	full, err := bake.LoadLock(images.FS, bake.DefaultLock)
	if err != nil {
		t.Fatal(err)
	}
	lock, mirror := baketest.SmallRelease(t, full)
	tree := func(flags ...string) (string, error) {
		var stdout, stderr bytes.Buffer
		args := append([]string{"hardtack", "tree", "--lock", lock, "--mirror", mirror, "--cache", filepath.Join(mirror, "cache"),
			"--source", "release", "--arch", "amd64"}, flags...)
		err := newApp(&stdout, &stderr).RunContext(t.Context(), args)
		return stdout.String(), err
	}
	// Any file will do for the agent: it is not started.
	human, err := tree("--agent", lock)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := tree("--agent", lock, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var out treeOutput
	if err := json.Unmarshal([]byte(asJSON), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.Files) < 50 || !strings.Contains(human, "digest "+out.Digest+"\n") {
		t.Errorf("%d files, digest %s; for people:\n%s", len(out.Files), out.Digest, human)
	}
	for _, want := range []string{" /usr/bin/kubelet  [kubernetes]", "/etc/systemd/system/multi-user.target.wants/etcd.service -> ", "[agent]"} {
		if !strings.Contains(human, want) {
			t.Errorf("the listing lacks %q:\n%s", want, human)
		}
	}
	if _, err := tree(); err == nil || !strings.Contains(err.Error(), "agent") {
		t.Errorf("without an agent: %v", err)
	}
	if _, err := tree("--agent", "/nowhere"); err == nil || !strings.Contains(err.Error(), "--agent: open /nowhere") {
		t.Errorf("with an agent that is not there: %v", err)
	}
}
