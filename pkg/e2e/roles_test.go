package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// reader is the unit that writes the role files.
const reader = "hardtack-userdata.service"

// seedRoleFile is a role file of the first system of this kind, unchanged.
const seedRoleFile = `CLUSTER_NAME=cncfdemo
CLOUD_PROVIDER=--cloud-provider=aws
KUBELET_HOSTNAME=--hostname-override=ip-172-20-0-12.us-west-2.compute.internal
`

// cloudConfig returns user data that writes the files, by path.
func cloudConfig(files map[string]string) string {
	type file struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	doc := struct {
		Files []file `json:"write_files"`
	}{Files: []file{}}
	for path, content := range files {
		doc.Files = append(doc.Files, file{path, content})
	}
	slices.SortFunc(doc.Files, func(a, b file) int { return strings.Compare(a.Path, b.Path) })
	text, err := json.Marshal(doc) // JSON is YAML
	if err != nil {
		panic(err) // strings in a struct always marshal
	}
	return "#cloud-config\n" + string(text) + "\n"
}

func roleFiles(roles role.Set) map[string]string {
	files := map[string]string{}
	for _, r := range roles {
		files[r.File()] = "CLUSTER_NAME=cncfdemo\n"
	}
	return files
}

func TestRoles(t *testing.T) {
	t.Parallel()
	needMachines(t)
	startRoles(t, "", Asked{Disk: image(t)}, roleCases)
}

// TestSealedRoles is TestRoles with the disk whose root is sealed.
func TestSealedRoles(t *testing.T) {
	t.Parallel()
	startRoles(t, "sealed ", Asked{Disk: sealedImage(t)}, roleCases)
}

// TestARM64Roles is TestRoles with a disk for arm64 and a machine of each role.
func TestARM64Roles(t *testing.T) {
	t.Parallel()
	startRoles(t, "arm64 ", Asked{Disk: arm64Image(t), Machine: qemu.Config{Arch: qemu.ARM64}}, roleCases[:3])
}

// TestSealedARM64Roles is the same with a disk for arm64 whose root is sealed.
func TestSealedARM64Roles(t *testing.T) {
	t.Parallel()
	needTime(t)
	disk := namedDisk(t, "HARDTACK_SEALED_ARM64_IMAGE", "for arm64 with a sealed root", "sealed-arm64")
	startRoles(t, "sealed arm64 ", Asked{Disk: disk, Machine: qemu.Config{Arch: qemu.ARM64}}, roleCases[:3])
}

// roleCase is a machine with roles.
type roleCase struct {
	name  string
	roles role.Set
	// files are its role files by path; nil is one for each role.
	files map[string]string
}

// roleCases begin with a machine of each role.
var roleCases = []roleCase{
	{name: "masters", roles: role.NewSet(role.Masters)},
	{name: "minions", roles: role.NewSet(role.Minions)},
	{name: "etcd", roles: role.NewSet(role.Etcd)},
	{name: "masters+etcd", roles: role.NewSet(role.Masters, role.Etcd)},
	{name: "all", roles: role.NewSet(role.All()...)},
	{name: "seed", roles: role.NewSet(role.Minions), files: map[string]string{role.Minions.File(): seedRoleFile}},
}

// startRoles boots machines with their roles; kind is what they are called among the figures.
func startRoles(t *testing.T, kind string, asked Asked, cases []roleCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			files := c.files
			if files == nil {
				files = roleFiles(c.roles)
			}
			asked := asked
			asked.UserData = cloudConfig(files)
			b := boot(t, asked)
			figures.add(kind+c.name, b)
			b.noCycle(t)
			b.cutOff(t)
			b.startedFor(t, c.roles)
			for path, want := range files {
				if got := b.Files[path]; got != want {
					t.Errorf("%s holds %q, want %q", path, got, want)
				}
			}
		})
	}
}

// TestNothingStarts gives a machine no role, or one that does not exist.
func TestNothingStarts(t *testing.T) {
	t.Parallel()
	needMachines(t)
	cases := []struct {
		name, userData, says string
	}{
		{"none", cloudConfig(map[string]string{"/etc/motd": "ship's biscuit\n"}), "has no role file"},
		{"unknown", cloudConfig(map[string]string{role.Dir + "/" + role.Prefix + "captain": "CLUSTER_NAME=cncfdemo\n"}), `role "captain": no unit of this image`},
		{"no user data", "", "no source has user data"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := boot(t, Asked{UserData: c.userData})
			b.noCycle(t)
			b.cutOff(t)
			b.startedFor(t, nil)
			// The reader has failed and tries again, so that it is seldom found in the state failed.
			if len(b.Failed) > 0 && !slices.Equal(b.Failed, []string{reader}) {
				t.Errorf("failed units %v, want %s at most", b.Failed, reader)
			}
			if !slices.ContainsFunc(b.Units[reader].Jobs, func(j Job) bool { return j.Type == "start" && j.Result == "failed" }) {
				t.Errorf("%s has not failed: %+v", reader, b.Units[reader])
			}
			if !strings.Contains(b.Console, c.says) {
				t.Errorf("the console does not say %q:\n%s", c.says, tail(b.Console, 30))
			}
			if len(b.Files) > 0 {
				t.Errorf("role files %v, want none", b.Files)
			}
		})
	}
}

// startedFor asserts that the result of each unit's conditions and start job is what pkg/image/unit computes for the
// roles.
func (b *Booted) startedFor(t *testing.T, roles role.Set) {
	t.Helper()
	if !b.Decided {
		t.Errorf("some unit's conditions were not looked at after %s", decideWithin)
	}
	for name, u := range loadUnits(t) {
		got, ok := b.Units[name]
		if !ok || got.Load != "loaded" {
			t.Errorf("%s: load state %q, want loaded", name, got.Load)
			continue
		}
		if _, ok := u.Role(); !ok {
			continue // a slice, or the reader, which has a test of its own
		}
		if got.FileState != "enabled" {
			t.Errorf("%s: is %s, want enabled", name, got.FileState)
		}
		// hardtack-member alone starts etcd, and does not on a machine whose cluster is not there. The image has no archive to import.
		if wrong := fate(got, u.Starts(roles) && name != "etcd.service" && name != "hardtack-images.service"); wrong != "" {
			t.Errorf("%s: %s; systemd says %+v", name, wrong, got)
		}
	}
	if want := len(roles) > 0; (b.Units[reader].Active == "active") != want {
		t.Errorf("%s is %s with role %s", reader, b.Units[reader].Active, roles)
	}
	for _, name := range b.Failed {
		if name != reader && !b.Units[name].Condition {
			t.Errorf("%s failed, and no role of this machine wants it", name)
		}
	}
}

// fate returns an error if a unit was wrongly started or wrongly not started. A started daemon may have failed since:
// without its cluster's certificates it fails and is restarted.
func fate(u Unit, starts bool) string {
	started := u.Activated > 0 || u.Started > 0
	skipped := slices.ContainsFunc(u.Jobs, func(j Job) bool { return strings.Contains(j.Message, "unmet condition check") })
	switch {
	case u.Conditioned == 0:
		return "its conditions were never looked at"
	case u.Condition != starts:
		return fmt.Sprintf("its conditions came out %v, want %v", u.Condition, starts)
	case started != starts:
		return fmt.Sprintf("it started: %v, want %v", started, starts)
	case skipped == starts:
		return fmt.Sprintf("its start job was skipped: %v, want %v", skipped, !starts)
	case starts && !u.Assert:
		return "it is to start, and one of its assertions does not hold"
	case !starts && u.Active != "inactive":
		return "it is " + u.Active + ", want inactive"
	}
	return ""
}
