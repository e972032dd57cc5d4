package boot

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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
`

// base is a machine's tree with users.
func base() tree {
	return tree{
		credential: allKinds, "run/credentials/@system/hardtack.instance-id": "i-1",
		"etc/passwd": "root:x:0:0::/root:/bin/sh\nbroken\netcd:x:812:813::/:/usr/sbin/nologin\n", "etc/group": "root:x:0:\nadm:x:4:\n",
		"etc/motd": "hello\n",
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
		"write /etc/sysconfig/kubernetes-minions 0600 0:0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("changes -want +got\n%s", diff)
	}
	wantTree := tree{
		minionsFile: "A=1\n", "etc/motd": "hello\nmore\n", "etc/new": "new\n", "usr/local/bin/tool": "#!/bin/sh\n",
	}
	delete(b, "etc/motd")
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(wantTree, readTree(t, root, b, tree{stateFile: "", recordFile: ""})); diff != "" {
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

// TestLinks refuses a link or a device that stands where the user data wants a file, since it is not followed; and replaces one
// that was put in the place of a file of the user data.
func TestLinks(t *testing.T) {
	const data = minions + "- {path: /etc/opt/link, content: x}\n"
	for name, test := range map[string]struct {
		tree tree
		pipe string
		want string
	}{
		"link":         {tree{"etc/opt/link": "-> ../passwd", "etc/passwd": "root:x:0:0"}, "", "/etc/opt/link is a symbolic link to ../passwd, and nothing is written through links"},
		"dead link":    {tree{"etc/opt/link": "-> nowhere"}, "", "/etc/opt/link is a symbolic link to nowhere"},
		"pipe":         {tree{"etc/opt/x": ""}, "etc/opt/link", "/etc/opt/link is to be a file and is of another kind (prw"},
		"of directory": {tree{"etc/opt": "-> ../opt", "opt/x": ""}, "", ""}, // as /lib is one
	} {
		t.Run(name, func(t *testing.T) {
			root := tree{fileSource: data}.with(test.tree).make(t)
			if test.pipe != "" {
				if err := unix.Mkfifo(filepath.Join(root, test.pipe), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Run(t.Context(), options(root, &service{}))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	// systemctl mask on a unit of the user data, and a reboot.
	unitFile := "etc/systemd/system/own.service"
	root := tree{fileSource: minions + "- {path: /" + unitFile + ", content: '[Service]'}\n"}.make(t)
	mustRun(t, root)
	if err := os.Remove(filepath.Join(root, unitFile)); err != nil {
		t.Fatal(err)
	}
	tree{unitFile: "-> /dev/null"}.put(t, root)
	mustRun(t, root)
	if got := readTree(t, root)[unitFile]; got != "[Service]" {
		t.Errorf("%q", got)
	}
}

// TestAppend appends once for each instance, and whatever the file has, as cloud-init does.
func TestAppend(t *testing.T) {
	const hosts = "etc/hosts"
	data := func(content string) string {
		return minions + "- {path: /" + hosts + ", append: true, content: \"" + content + "\"}\n"
	}
	for name, test := range map[string]struct{ before, content, want string }{
		"end of a line that is there":  {"127.0.0.1 localhost\n", `localhost\n`, "127.0.0.1 localhost\nlocalhost\n"},
		"a line that is there":         {"a\nb\n", `a\n`, "a\nb\na\n"},
		"the last line":                {"a\n", `a\n`, "a\na\n"},
		"a line without its end":       {"127.0.0.1", ` localhost\n`, "127.0.0.1 localhost\n"},
		"part of the first line there": {"xabc", `abc`, "xabcabc"},
		"nothing":                      {"a\n", ``, "a\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree{credential: data(test.content), "run/credentials/@system/hardtack.instance-id": "i-1", hosts: test.before}.make(t)
			check := func(when, want string) {
				t.Helper()
				if got := readTree(t, root)[hosts]; got != want {
					t.Errorf("%s: %q, want %q", when, got, want)
				}
			}
			mustRun(t, root)
			check("first boot", test.want)
			mustRun(t, root)
			check("second boot", test.want)

			// A crash after the record and before the file.
			tree{hosts: test.before}.put(t, root)
			mustRun(t, root)
			check("after a crash", test.want)

			// Other user data, and the first again.
			tree{credential: data(`other\n`)}.put(t, root)
			mustRun(t, root)
			tree{credential: data(test.content)}.put(t, root)
			mustRun(t, root)
			check("changed and back", test.want+"other\n")

			// A copy of the disk in another instance.
			tree{hosts: test.before, "run/credentials/@system/hardtack.instance-id": "i-2"}.put(t, root)
			mustRun(t, root)
			mustRun(t, root)
			check("another instance", test.want)
		})
	}
	root := tree{credential: data(`b\n`), hosts: "a\n", recordFile: "{"}.make(t)
	report := mustRun(t, root)
	if len(report.Findings) == 0 || report.Findings[0].File != "/"+recordFile {
		t.Errorf("a broken record: %v", report.Findings)
	}
}

// TestDirectoryOwner gives the directories that are missing to the file's owner, and no other.
func TestDirectoryOwner(t *testing.T) {
	needRoot(t)
	root := tree{fileSource: minions + "- {path: /opt/app/data/conf, owner: '812:4'}\n- {path: /opt/app/other/conf}\n", "opt/there": ""}.make(t)
	mustRun(t, root)
	for name, want := range map[string]string{"opt": "40755 0:0", "opt/app": "40755 812:4", "opt/app/data": "40755 812:4",
		"opt/app/data/conf": "100644 812:4", "opt/app/other": "40755 0:0"} {
		if got := owned(t, root, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestLaunchIndex gives each instance the parts that are for its launch index.
func TestLaunchIndex(t *testing.T) {
	const data = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n" +
		"--b\nContent-Type: text/cloud-config\nLaunch-Index: 1\n\nwrite_files: [{path: /etc/sysconfig/kubernetes-masters}]\n" +
		"--b\nContent-Type: text/cloud-config\n\nlaunch-index: 0\nwrite_files: [{path: /etc/sysconfig/kubernetes-minions}]\n--b--\n"
	for index, want := range map[int]string{0: "minions", 1: "masters"} {
		root := nitro.make(t)
		s := &service{id: "i-0123456789abcdef0", data: data, index: index}
		report, err := Run(t.Context(), options(root, s))
		if err != nil || report.Roles.String() != want {
			t.Errorf("launch index %d: %s, %v", index, report.Roles, err)
		}
	}
	for name, test := range map[string]struct {
		tree tree
		s    *service
		want string
	}{
		"plain":         {nitro, &service{id: "i-0123456789abcdef0", data: minions}, "minions"},
		"seed":          {tree{"var/lib/cloud/seed/nocloud/user-data": data, "var/lib/cloud/seed/nocloud/meta-data": "launch-index: 1\n"}, &service{}, "masters"},
		"none of EC2":   {nitro, &service{id: "i-0123456789abcdef0", data: data, index: -1}, ""},
		"none in seed":  {tree{"var/lib/cloud/seed/nocloud/user-data": data}, &service{}, ""},
		"of the others": {nitro, &service{id: "i-0123456789abcdef0", data: data, index: 2}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := test.tree.make(t)
			report, err := Run(t.Context(), options(root, test.s))
			if (err == nil) != (test.want != "") || report.Roles.String() != test.want && err == nil {
				t.Errorf("%s, %v", report.Roles, err)
			}
			if asked := slices.Contains(test.s.asked, "launch-index"); asked != (test.s.data == data) {
				t.Errorf("asked %q", test.s.asked)
			}
		})
	}
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
	o := options(root, s)
	o.Deadline = 300 * time.Millisecond // the waits are a part of it
	report, err := Run(t.Context(), o)
	if err != nil || report.Kept || report.Roles.String() != "masters" {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestKilled runs after a run that was killed before its files were in their places: nothing of it stays.
func TestKilled(t *testing.T) {
	root := tree{fileSource: minions}.make(t)
	a := newAgent(options(root, &service{}))
	for _, name := range []string{minionsFile, stateFile} {
		if _, err := a.stage(step{path: "/" + name, place: "/" + name, content: []byte("half"), mode: 0o600, uid: keepOwner, gid: keepOwner}); err != nil {
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
