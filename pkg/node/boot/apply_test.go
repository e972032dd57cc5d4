package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

const allKinds = `#cloud-config
write_files:
- {path: /etc/sysconfig/kubernetes-minions, content: "A=1\n", permissions: "0600"}
- {path: /etc/motd, content: "more\n", append: true}
- {path: /etc/new, content: "new\n", append: true}
- {path: /usr/local/bin/tool, content: "#!/bin/sh\n", permissions: "4755", owner: "etcd:adm"}
- {path: /etc/link, content: "no link any more\n"}
`

// base is a machine's tree with users.
func base() tree {
	return tree{
		credential: allKinds, "run/credentials/@system/hardtack.instance-id": "i-1",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nbroken\netcd:x:812:813::/:/usr/sbin/nologin\n", "etc/group": "root:x:0:\nadm:x:4:\n",
		"etc/motd": "hello\n", "etc/link": "-> motd",
	}
}

// needRoot skips where files cannot be given away.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("giving files to other users needs root, and this test runs as user", os.Geteuid())
	}
}

// TestReadOnly gives a machine user data that it cannot write: its disk is the reason, and not what it was told.
func TestReadOnly(t *testing.T) {
	needRoot(t)
	root := base().make(t)
	etc := filepath.Join(root, "etc")
	if err := unix.Mount(etc, etc, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("this computer lets nobody mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(etc, 0); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", etc, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), Options{Root: root})
	if ReasonOf(err) != reason.Disk || !errors.Is(err, unix.EROFS) || strings.Contains(err.Error(), "write_files") {
		t.Errorf("on a read-only file system: [%s] %v", ReasonOf(err), err)
	}
	if len(report.Roles) > 0 {
		t.Errorf("roles %s", report.Roles)
	}
}

// TestApply writes every kind of file, again on the second boot, and again for another instance.
func TestApply(t *testing.T) {
	needRoot(t)
	b := base()
	root := b.make(t)
	report := mustRun(t, root)
	var got []string
	for _, c := range report.Files {
		got = append(got, strings.Join([]string{c.Action, c.Path, c.Mode, c.Owner}, " "))
	}
	want := []string{
		"append /etc/motd 0644 0:0", "write /etc/new 0644 0:0", "write /usr/local/bin/tool 4755 812:4",
		"write /etc/link 0644 0:0", "write /etc/sysconfig/kubernetes-minions 0600 0:0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes -want +got\n%s", diff)
	}
	wantTree := tree{
		minionsFile: "A=1\n", "etc/motd": "hello\nmore\n", "etc/new": "new\n", "usr/local/bin/tool": "#!/bin/sh\n",
		"etc/link": "no link any more\n",
	}
	delete(b, "etc/motd")
	delete(b, "etc/link")
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(wantTree, readTree(t, root, b, tree{stateFile: ""})); diff != "" {
			t.Errorf("%s: -want +got\n%s", when, diff)
		}
	}
	check("first boot")
	for name, want := range map[string]string{minionsFile: "100600 0:0", "usr/local/bin/tool": "104755 812:4", "etc/motd": "100644 0:0", stateFile: "100600 0:0"} {
		if got := owned(t, root, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}

	inodes := inode(t, root, minionsFile) + inode(t, root, "etc/motd") + inode(t, root, stateFile)
	for _, c := range mustRun(t, root).Files {
		if c.Action != "unchanged" {
			t.Errorf("second boot: %+v", c)
		}
	}
	if again := inode(t, root, minionsFile) + inode(t, root, "etc/motd") + inode(t, root, stateFile); again != inodes {
		t.Errorf("files were written again")
	}
	check("second boot")

	// The state is lost, as in a crash before it was written; then the disk boots as another instance.
	if err := os.Remove(filepath.Join(root, stateFile)); err != nil {
		t.Fatal(err)
	}
	mustRun(t, root)
	check("boot without a state")
	tree{credential: masters, "run/credentials/@system/hardtack.instance-id": "i-2"}.put(t, root)
	report = mustRun(t, root)
	if len(report.Files) != 2 || report.Files[0] != (Change{Path: "/" + minionsFile, Action: "remove"}) || report.InstanceID != "i-2" {
		t.Errorf("as another instance: %+v", report)
	}
	delete(wantTree, minionsFile)
	wantTree[mastersFile] = "A=1"
	check("as another instance")
}

// TestDryRun says the same and changes nothing.
func TestDryRun(t *testing.T) {
	needRoot(t)
	root := base().with(tree{etcdFile: "stale"}).make(t)
	before := readTree(t, root)
	o := options(root, &service{})
	o.DryRun = true
	dry, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, readTree(t, root)); diff != "" {
		t.Errorf("changed: %s", diff)
	}
	wet := mustRun(t, root)
	if wet.DryRun = true; cmp.Diff(dry, wet) != "" {
		t.Errorf("-dry +wet\n%s", cmp.Diff(dry, wet))
	}
}

// TestRoleFileKinds removes whatever has the name of a stale role file: any kind satisfies a condition.
func TestRoleFileKinds(t *testing.T) {
	root := tree{fileSource: minions, etcdFile + "/inside": "x", mastersFile: "-> /nowhere"}.make(t)
	report := mustRun(t, root)
	if len(report.Files) != 3 {
		t.Errorf("%+v", report.Files)
	}
	if diff := cmp.Diff(tree{minionsFile: "A=1"}, readTree(t, root, tree{stateFile: "", fileSource: ""})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestState holds the whole record of a run, and survives a broken one.
func TestState(t *testing.T) {
	root := nitro.with(tree{stateFile: "{"}).make(t)
	report, err := Run(t.Context(), options(root, &service{id: "i-0123456789abcdef0", data: minions}))
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 2 || !strings.Contains(report.Findings[0].String(), "is not used: unexpected end of JSON input") || report.Findings[1].Rule != RuleLine {
		t.Errorf("findings %v", report.Findings)
	}
	var got state
	if err := json.Unmarshal([]byte(readTree(t, root)[stateFile]), &got); err != nil {
		t.Fatal(err)
	}
	want := state{InstanceID: "i-0123456789abcdef0", Machine: "i-0123456789abcdef0", Source: "imds", Roles: report.Roles,
		Digest: "99a7feac8ec4964d9b2b7c540fec8e140dd3c7b0b5505ee10e72aff76ed961bb", Files: []string{"/" + minionsFile}, Created: []string{"/" + minionsFile}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestMetadataServiceOut reboots a machine while the metadata service is out of reach: the hardware must
// vouch for it to keep its roles.
func TestMetadataServiceOut(t *testing.T) {
	down := &service{err: errors.New("no route")}
	tests := []struct {
		name   string
		change func(t *testing.T, root string)
		out    *service
		kept   bool
		left   tree
	}{
		{"the same machine", func(*testing.T, string) {}, down, true, tree{minionsFile: "A=1"}},
		{"with a role that it was not given", func(t *testing.T, root string) { t.Helper(); tree{etcdFile: "x"}.put(t, root) }, down, true, tree{minionsFile: "A=1"}},
		{"another machine", func(t *testing.T, root string) {
			t.Helper()
			tree{"sys/class/dmi/id/board_asset_tag": "i-0fedcba9876543210"}.put(t, root)
		}, down, false, tree{}},
		{"a machine that does not say which", func(t *testing.T, root string) {
			t.Helper()
			tree{"sys/class/dmi/id/board_asset_tag": "none"}.put(t, root)
		}, down, false, tree{}},
		{"without its role file", func(t *testing.T, root string) {
			t.Helper()
			if err := os.Rename(filepath.Join(root, minionsFile), filepath.Join(root, etcdFile)); err != nil {
				t.Fatal(err)
			}
		}, down, false, tree{}},
		// User data can be changed only while an instance is stopped, so that this answer is wrong, or a person's mistake.
		{"the answer is that there is none", func(*testing.T, string) {}, &service{id: "i-0123456789abcdef0"}, true, tree{minionsFile: "A=1"}},
		{"there is none on another machine", func(t *testing.T, root string) {
			t.Helper()
			tree{"sys/class/dmi/id/board_asset_tag": "i-0fedcba9876543210"}.put(t, root)
		}, &service{id: "i-0fedcba9876543210"}, false, tree{}},
		{"user data that takes the roles off", func(*testing.T, string) {}, &service{id: "i-0123456789abcdef0", data: "#cloud-config\n"}, false, tree{}},
		{"given by another source", func(t *testing.T, root string) {
			t.Helper()
			tree{fileSource: minions}.put(t, root)
			mustRun(t, root)
			if err := os.Remove(filepath.Join(root, fileSource)); err != nil {
				t.Fatal(err)
			}
		}, down, false, tree{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := nitro.make(t)
			if _, err := Run(t.Context(), options(root, &service{id: "i-0123456789abcdef0", data: minions})); err != nil {
				t.Fatal(err)
			}
			test.change(t, root)
			report, err := Run(t.Context(), options(root, test.out))
			if report.Kept != test.kept || (err == nil) != test.kept || test.kept && report.Roles.String() != "minions" {
				t.Errorf("kept %v, roles %v, %v", report.Kept, report.Roles, err)
			}
			if diff := cmp.Diff(test.left, readTree(t, root, nitro, tree{stateFile: ""})); diff != "" {
				t.Errorf("left -want +got\n%s", diff)
			}
		})
	}
}

// TestDenied reboots a machine whose metadata service denies for a moment that there is user data: what it has then
// counts.
func TestDenied(t *testing.T) {
	root := nitro.make(t)
	s := &service{id: "i-0123456789abcdef0", data: minions}
	if _, err := Run(t.Context(), options(root, s)); err != nil {
		t.Fatal(err)
	}
	s.data, s.denials = masters, 3
	report, err := Run(t.Context(), options(root, s))
	if err != nil || report.Kept || report.Roles.String() != "masters" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestKilled runs after a run that was killed before its files were in their places: nothing of it stays.
func TestKilled(t *testing.T) {
	root := tree{fileSource: minions}.make(t)
	a := newAgent(options(root, &service{}))
	for _, name := range []string{minionsFile, stateFile} {
		if _, err := a.stage(step{path: "/" + name, content: []byte("half"), mode: 0o600, uid: keepOwner, gid: keepOwner}); err != nil {
			t.Fatal(err)
		}
	}
	if left := readTree(t, root, tree{fileSource: ""}); len(left) != 2 || left[minionsFile] != "" {
		t.Fatalf("a killed run leaves %v", left)
	}
	mustRun(t, root)
	if diff := cmp.Diff(tree{minionsFile: "A=1"}, readTree(t, root, tree{fileSource: "", stateFile: ""})); diff != "" {
		t.Errorf("left -want +got\n%s", diff)
	}
}

// TestFullDisk writes to a disk that has no room: no role file and no half of anything is left.
func TestFullDisk(t *testing.T) {
	needRoot(t)
	root := t.TempDir()
	if err := unix.Mount("hardtack-test", root, "tmpfs", 0, "size=64k"); errors.Is(err, unix.EPERM) {
		t.Skip("a disk that is full needs a tmpfs, which root may not mount here:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, 0); err != nil {
			t.Error(err)
		}
	})
	before := tree{minionsFile: "stale", "etc/big": "before"}
	before.put(t, root)
	o := options(root, &service{})
	o.Credentials = tree{"hardtack.userdata": "#cloud-config\nwrite_files:\n- {path: /etc/sysconfig/kubernetes-etcd}\n- {path: /etc/big, content: '" +
		strings.Repeat("x", 100<<10) + "'}\n"}.make(t)
	_, err := Run(t.Context(), o)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff(tree{"etc/big": "before"}, readTree(t, root)); diff != "" {
		t.Errorf("left -want +got\n%s", diff)
	}
}

func mustRun(t *testing.T, root string) Report {
	t.Helper()
	report, err := Run(t.Context(), options(root, &service{}))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func stat(t *testing.T, root, name string) unix.Stat_t {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, name), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// owned returns type and mode in octal, and the owner.
func owned(t *testing.T, root, name string) string {
	t.Helper()
	s := stat(t, root, name)
	return fmt.Sprintf("%o %d:%d", s.Mode, s.Uid, s.Gid)
}

func inode(t *testing.T, root, name string) string {
	t.Helper()
	return fmt.Sprintf("%d ", stat(t, root, name).Ino)
}
