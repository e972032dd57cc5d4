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
	// Any file will do for a program: none is started.
	human, err := tree("--agent", lock, "--reader", lock)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := tree("--agent", lock, "--reader", lock, "--json")
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
	for _, want := range []string{" /usr/bin/kubelet  [kubernetes]", "/etc/systemd/system/multi-user.target.wants/etcd.service -> ", "/usr/lib/hardtack/bin/hardtack-agent  [agent]", "/usr/lib/hardtack/bin/hardtack-userdata  [reader]"} {
		if !strings.Contains(human, want) {
			t.Errorf("the listing lacks %q:\n%s", want, human)
		}
	}
	for given, missing := range map[string]string{"agent": "reader", "reader": "agent"} {
		if _, err := tree("--"+given, lock); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("without --%s: %v", missing, err)
		}
	}
	for given, missing := range map[string]string{"agent": "reader", "reader": "agent"} {
		if _, err := tree("--"+given, lock, "--"+missing, "/nowhere"); err == nil || !strings.Contains(err.Error(), "--"+missing+": open /nowhere") {
			t.Errorf("with a program for --%s that is not there: %v", missing, err)
		}
	}
}
