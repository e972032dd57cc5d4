package unit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// distributionUnits is where the test's machine has systemd's own units, which the scratch root gets a
// copy of.
const distributionUnits = "/usr/lib/systemd/system"

// needSystemd skips where there is no systemd to ask, and returns its version.
func needSystemd(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "--version").Output()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("this machine has no systemd-analyze")
	}
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(out))
	version, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatalf("reading systemd's version of %q: %v", out, err)
	}
	return version
}

// scratch is a root directory with systemd's units and those of each file system, enabled.
func scratch(t *testing.T, sources ...fs.FS) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, distributionUnits)
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants")
	for _, d := range []string{filepath.Dir(dir), wants} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// cp keeps the links that CopyFS refuses to make.
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", distributionUnits, dir).CombinedOutput(); err != nil {
		t.Fatalf("copying systemd's units: %v\n%s", err, out)
	}
	for _, source := range sources {
		us, problems := unit.Load(source)
		if len(problems) > 0 {
			t.Fatal(problems.Err())
		}
		for _, u := range us {
			data, err := fs.ReadFile(source, u.File)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, u.Name)
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			if u.Value("Install", "WantedBy").Value == "multi-user.target" {
				if err := os.Symlink(file, filepath.Join(wants, u.Name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return root
}

// verify returns what systemd says about starting multi-user.target. Its exit code says nothing: it is 0
// with a cycle, and 1 because a manual page is missing.
func verify(t *testing.T, root string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--generators=no", "--root="+root, "multi-user.target")
	var exit *exec.ExitError
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// since254 are settings that older systemd reports as unknown. The image has 257.
var since254 = regexp.MustCompile(`Unknown key( name)? '(RestartSteps|RestartMaxDelaySec|ImportCredential)'`)

func TestSystemdAcceptsTheUnits(t *testing.T) {
	version := needSystemd(t)
	for line := range strings.Lines(verify(t, scratch(t, units.FS))) {
		switch {
		case version < 254 && since254.MatchString(line):
		case strings.Contains(line, "is not executable: No such file"): // `hardtack lint` sees to programs
		default:
			t.Errorf("systemd says: %s", line)
		}
	}
}

// cloudFinal is the part of cloud-init's last stage that matters.
const cloudFinal = `[Unit]
After=network-online.target cloud-config.service multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/true
[Install]
WantedBy=multi-user.target
`

// TestCyclesAreSystemds holds the lint's cycles against systemd's own.
func TestCyclesAreSystemds(t *testing.T) {
	needSystemd(t)
	cases, err := filepath.Glob("testdata/*/*")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := fs.ReadFile(units.FS, unit.UserData)
	if err != nil {
		t.Fatal(err)
	}
	cycles := 0
	for _, dir := range cases {
		us, problems := unit.Load(os.DirFS(dir))
		if len(problems) > 0 {
			continue // systemd is not asked about what the lint refuses to read
		}
		t.Run(filepath.Base(dir), func(t *testing.T) {
			ours := false
			for _, p := range unit.Lint(us, paths{}) {
				ours = ours || p.Rule == unit.RuleCycle
			}
			root := scratch(t, fstest.MapFS{unit.UserData: {Data: reader}}, os.DirFS(dir))
			file := filepath.Join(root, distributionUnits, "cloud-final.service")
			if err := os.WriteFile(file, []byte(cloudFinal), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(file, filepath.Join(root, "etc/systemd/system/multi-user.target.wants/cloud-final.service")); err != nil {
				t.Fatal(err)
			}
			out := verify(t, root)
			if theirs := strings.Contains(out, "ordering cycle"); theirs != ours {
				t.Errorf("the lint finds a cycle: %v, systemd: %v\n%s", ours, theirs, out)
			}
			if ours {
				cycles++
			}
		})
	}
	if cycles < 3 {
		t.Errorf("%d cycles were compared, want 3 or more", cycles)
	}
}

// TestStartsIsSystemds asks systemd for every verdict, of the cases and of the real units, with role
// files in a directory of the test's in place of the machine's.
func TestStartsIsSystemds(t *testing.T) {
	needSystemd(t)
	texts := map[string]string{}
	for i, v := range verdicts() {
		texts[fmt.Sprintf("case-%d.service", i)] = v.unit()
	}
	names, err := fs.Glob(units.FS, "*.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(units.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	for _, set := range role.Combinations() {
		t.Run(set.String(), func(t *testing.T) {
			t.Parallel()
			root, etc := t.TempDir(), t.TempDir()
			dir := filepath.Join(root, "etc/systemd/system")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, r := range set {
				if err := os.WriteFile(filepath.Join(etc, filepath.Base(r.File())), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range texts {
				// What the roles do not decide holds here, as it does in Starts.
				elsewhere := strings.NewReplacer("ConditionPathExists=/run/hardtack/etcd/member", "ConditionPathExists=/",
					"ConditionPathExistsGlob=/usr/lib/hardtack/images/*.tar", "ConditionPathExists=/",
					"ConditionPathExistsGlob=|/run/hardtack/pki/*/*.key", "ConditionPathExists=|/", role.Dir+"/", etc+"/", "/etc//sysconfig/./", etc+"//./").Replace(text)
				// systemd says nothing about a unit without conditions; this one always holds.
				elsewhere += "\n[Unit]\nConditionPathExists=/\n"
				if err := os.WriteFile(filepath.Join(dir, name), []byte(elsewhere), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range texts {
				if ours, theirs := parse(t, text).Starts(set), systemdStarts(t, root, name); ours != theirs {
					t.Errorf("%s starts: %v, says systemd %v:\n%s", name, ours, theirs, text)
				}
			}
		})
	}
}

// systemdStarts evaluates the conditions of a unit below root.
func systemdStarts(t *testing.T, root, name string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "condition", "--root="+root, "--unit="+name)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	failed, succeeded := strings.Contains(string(out), "Conditions failed."), strings.Contains(string(out), "Conditions succeeded.")
	if failed == succeeded {
		t.Fatalf("systemd says neither or both of %s:\n%s", name, out)
	}
	return succeeded
}

// exposed is the upper bound of each unit's exposure (0 is best, 10 worst) as systemd 252 computes it;
// 257 gives up to 0.2 less. A unit without a sandbox says why in its file.
var exposed = map[string]float64{
	"etcd.service":                    1.3,
	"kube-apiserver.service":          1.6,
	"kube-controller-manager.service": 1.3,
	"kube-scheduler.service":          1.3,
	"kube-proxy.service":              2.3,
	"flanneld.service":                2.3,
	"konnectivity-agent.service":      1.8,
	"konnectivity-server.service":     1.3,
	"hardtack-addons.service":         1.8,
	"hardtack-bootstrap.service":      1.8,
	"hardtack-certs-etcd.service":     2.1,
	"hardtack-certs-masters.service":  2.1,
	"hardtack-controller.service":     2.1,
	"hardtack-images.service":         1.1,
	"hardtack-member.service":         2.9,
	"hardtack-node.service":           2.2,
	"hardtack-notices.service":        1.8,
	"hardtack-ready.service":          2.1,
	"hardtack-registered.service":     9.0,
	"hardtack-renew.service":          2.1,
	"hardtack-userdata.service":       4.6,
	"kubelet.service":                 9.5,
	"containerd.service":              9.6,
}

var overall = regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`)

func TestExposure(t *testing.T) {
	needSystemd(t)
	us, problems := unit.Load(units.FS)
	if len(problems) > 0 {
		t.Fatal(problems.Err())
	}
	root := scratch(t, units.FS)
	for _, u := range us {
		if u.Kind() != "service" {
			continue
		}
		t.Run(u.Name, func(t *testing.T) {
			bound, ok := exposed[u.Name]
			if !ok {
				t.Fatal("the unit has no bound in the table")
			}
			file := filepath.Join(root, distributionUnits, u.Name)
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=true", "--no-pager", file).CombinedOutput()
			found := overall.FindSubmatch(out)
			if err != nil || found == nil {
				t.Fatalf("asking systemd: %v\n%s", err, out)
			}
			got, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("exposure %.1f", got)
			if got > bound {
				t.Errorf("exposure is %.1f, want at most %.1f", got, bound)
			}
		})
	}
}

// TestNothingWaitsForAddons: what the API server refuses is tried without end, and starts nothing else later.
func TestNothingWaitsForAddons(t *testing.T) {
	t.Parallel()
	const addons = "hardtack-addons.service"
	all, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	shown := map[string]unit.Unit{}
	for _, u := range all {
		shown[u.Name] = u
	}
	if _, there := shown[addons]; !there {
		t.Fatalf("there is no %s", addons)
	}
	for name, after := range orders(shown) {
		if after[addons] {
			t.Errorf("%s waits for %s", name, addons)
		}
	}
}
