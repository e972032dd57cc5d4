package boot

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinksOnTheWay writes through links of root's, such as Debian's /var/run, and not through one that a daemon has put into a
// directory of its own: it would choose where root writes at the next boot.
func TestLinksOnTheWay(t *testing.T) {
	needRoot(t)
	data := tree{fileSource: minions + "- {path: /var/run/app/conf, owner: '812:4'}\n- {path: /var/lib/app/conf/10-app.conf, owner: '812:4'}\n"}
	root := data.with(tree{"var/run": "-> ../run", "etc/systemd/system/kubelet.service.d/10-hardtack.conf": "[Service]\n"}).make(t)
	mustRun(t, root)
	if got := owned(t, root, "run/app/conf"); got != "100644 812:4" {
		t.Errorf("through root's link: %s", got)
	}
	conf := filepath.Join(root, "var/lib/app/conf")
	if err := errors.Join(os.RemoveAll(conf), os.Symlink("/etc/systemd/system/kubelet.service.d", conf)); err != nil {
		t.Fatal(err)
	}
	mustRun(t, root) // as if the image had the link
	if got := owned(t, root, "etc/systemd/system/kubelet.service.d/10-app.conf"); got != "100644 812:4" {
		t.Errorf("through root's link with an absolute target: %s", got)
	}
	if err := errors.Join(os.Remove(filepath.Join(root, "etc/systemd/system/kubelet.service.d/10-app.conf")), os.Lchown(conf, 812, 4)); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), Options{Root: root})
	if err == nil || !strings.Contains(err.Error(), "the way to /var/lib/app/conf/10-app.conf: /var/lib/app/conf is a symbolic link to /etc/systemd/system/kubelet.service.d and not root's") {
		t.Errorf("through the daemon's link: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(root, "etc/systemd/system/kubelet.service.d/10-app.conf")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written: %v", err)
	}
	for name, links := range map[string]tree{"circle": {"opt/a": "-> b", "opt/b": "-> a"}, "a file": {"opt/a": ""}} {
		root := links.with(tree{fileSource: minions + "- {path: /opt/a/conf}\n"}).make(t)
		if _, err := Run(t.Context(), Options{Root: root}); err == nil || !strings.Contains(err.Error(), "/opt/a") {
			t.Errorf("%s in the way: %v", name, err)
		}
	}
}
