package boot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withFiles is a minion's user data with a static pod, an addon, files over the image's own, and one behind a link.
const withFiles = minions + `- {path: /etc/kubernetes/manifests/pod.yaml, content: pod}
- {path: /etc/hardtack/addons/90-own.yaml, content: addon}
- {path: /etc/kubernetes/kubelet.yaml, content: changed}
- {path: /etc/motd, content: more, append: true}
- {path: /etc/own/replaced, content: x}
- {path: /etc/own/turned, content: x}
- {path: /etc/moved/file, content: x}
`

// TestStaleFiles boots with user data, and again with less: what only the first had is gone, and nothing else.
func TestStaleFiles(t *testing.T) {
	image := tree{"etc/kubernetes/kubelet.yaml": "the image's", "etc/motd": "hello"}
	root := image.with(tree{fileSource: withFiles}).make(t)
	mustRun(t, root)
	mustRun(t, root) // a second boot with the same must not forget what the first has made
	outside := tree{"file": "another's"}.make(t)
	for _, err := range []error{
		os.WriteFile(filepath.Join(root, fileSource), []byte(minions), 0o600),
		os.WriteFile(filepath.Join(root, "etc/own/replaced"), []byte("by a person"), 0o600),
		// What is no regular file any more, or behind a link, is not what was written.
		os.Remove(filepath.Join(root, "etc/own/turned")), os.Symlink("/etc/passwd", filepath.Join(root, "etc/own/turned")),
		os.RemoveAll(filepath.Join(root, "etc/moved")), os.Symlink(outside, filepath.Join(root, "etc/moved")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	report := mustRun(t, root)
	if _, err := os.Lstat(filepath.Join(root, "etc/own/turned")); err != nil {
		t.Errorf("a link in place of the file: %v", err)
	}
	if diff := cmp.Diff(tree{"file": "another's"}, readTree(t, outside)); diff != "" {
		t.Errorf("behind the link -want +got\n%s", diff)
	}
	for _, name := range []string{"etc/own/turned", "etc/moved"} {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	want := tree{minionsFile: "A=1", "etc/kubernetes/kubelet.yaml": "changed", "etc/motd": "hellomore"}
	if diff := cmp.Diff(want, readTree(t, root, tree{fileSource: "", stateFile: "", recordFile: ""})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var stay []string
	for _, f := range report.Findings {
		if f.Rule == "stale-file" {
			stay = append(stay, f.File)
		}
	}
	if want := "/etc/kubernetes/kubelet.yaml /etc/motd /etc/own/turned /etc/moved/file"; strings.Join(stay, " ") != want {
		t.Errorf("said to stay: %q, want %s", stay, want)
	}
	for _, c := range mustRun(t, root).Files {
		if c.Action != "unchanged" {
			t.Errorf("the boot after that: %+v", c)
		}
	}
}
