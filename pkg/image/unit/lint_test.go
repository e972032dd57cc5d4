package unit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// Units without a finding. What a case adds begins on line 8 of minion and own, and on line 7 of every.
const (
	minion = "[Unit]\nConditionPathExists=/etc/sysconfig/kubernetes-minions\nAfter=hardtack-userdata.service\n" +
		"[Service]\nExecStart=/usr/bin/good\n[Install]\nWantedBy=multi-user.target\n"
	every = "[X-Hardtack]\nRole=any\n[Service]\nExecStart=/usr/bin/good\n[Install]\nWantedBy=multi-user.target\n"
	// triggered is for a timer to start.
	triggered = "[X-Hardtack]\nRole=any\n[Service]\nExecStart=/usr/bin/good\n"
	timer     = "[X-Hardtack]\nRole=any\n[Timer]\nOnBootSec=1min\n"
	enabled   = "[Install]\nWantedBy=timers.target\n"
)

// own is minion for a role of an operator's own.
func own(role string) string {
	return strings.ReplaceAll(minion, "kubernetes-minions", "kubernetes-"+role)
}

// wantedBy is every, wanted by another unit.
func wantedBy(name string) string { return strings.Replace(every, "multi-user.target", name, 1) }

// texts are units by their names.
type texts = map[string]string

// load loads units by their names.
func load(t *testing.T, all texts) []unit.Unit {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range all {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	us, found := unit.Load(fsys)
	if len(found) > 0 {
		t.Fatal(found)
	}
	return us
}

// lint returns the rule and the place of each finding: "[exec] x.service:8".
func lint(t *testing.T, all texts) []string {
	t.Helper()
	var out []string
	for _, p := range unit.Lint(load(t, all), paths{"/usr/bin/good", "/bin/sh", "/etc/kubernetes/good"}) {
		out = append(out, fmt.Sprintf("[%s] %s:%d", p.Rule, p.File, p.Line))
	}
	return out
}

func TestLintFindings(t *testing.T) {
	const x, y, z = "x.service", "y.service", "y.timer"
	for name, tt := range map[string]struct {
		units texts
		want  []string
	}{
		"a unit of a role":                  {texts{x: minion}, nil},
		"a unit of every machine":           {texts{x: every}, nil},
		"a slice and a target need no role": {texts{"x.slice": "[Slice]\nMemoryMax=1G\n", "x.target": "[Unit]\nDescription=x\n"}, nil},
		"a section of another kind, once":   {texts{x: minion + "[Socket]\nUser=a\nGroup=a\n"}, []string{"[section] x.service:9"}},
		"two sections of other kinds": {texts{x: minion + "[Socket]\nUser=a\n[Timer]\nUnit=a\n"},
			[]string{"[section] x.service:9", "[section] x.service:11"}},
		"a dependency on the distribution's": {texts{x: minion + "[Unit]\nRequires=dbus.service\nWants=network-online.target\n"}, nil},
		"a file of the image":                {texts{x: every + "[Service]\nEnvironmentFile=/etc/kubernetes/good\n"}, nil},
		"a file that no role decides": {texts{x: every + "[Service]\nEnvironmentFile=/etc/kubernetes/bad\n"},
			[]string{"[environment] x.service:8"}},
		"the file of its own role": {texts{x: minion + "[Service]\nEnvironmentFile=/etc/sysconfig/kubernetes-minions\n"}, nil},
		"a role's file on every machine": {texts{x: every + "[Service]\nEnvironmentFile=/etc/sysconfig/kubernetes-minions\n"},
			[]string{"[environment] x.service:8"}},
		"the file of what is no role": {texts{x: every + "[Service]\nEnvironmentFile=/etc/sysconfig/kubernetes-minion\n"},
			[]string{"[environment] x.service:8"}},
		"an assertion that holds": {texts{x: minion + "[Unit]\nAssertPathExists=/etc/kubernetes/good\n"}, nil},
		"an assertion that does not hold": {texts{x: minion + "[Unit]\nAssertPathExists=/etc/kubernetes/bad\n"},
			[]string{"[assert] x.service:9"}},
		"a timer's unit":              {texts{y: triggered, z: timer + enabled}, nil},
		"a unit that a timer names":   {texts{x: triggered, z: timer + "Unit=x.service\n" + enabled}, nil},
		"a timer that nothing starts": {texts{y: triggered, z: timer}, []string{"[install] y.service:0", "[install] y.timer:0"}},
		"a unit whose timer names another": {texts{x: triggered, y: triggered, z: timer + "Unit=x.service\n" + enabled},
			[]string{"[install] y.service:0"}},
		"a unit with the name of no timer": {texts{x: triggered, z: timer + enabled}, []string{"[install] x.service:0"}},
		"what a service says of a timer": {texts{x: triggered, y: every + "[Timer]\nUnit=x.service\n"},
			[]string{"[install] x.service:0", "[section] y.service:8"}},
		"two roles of nearly the same name": {texts{x: own("storage"), y: own("storages")},
			[]string{"[role-condition] x.service:2", "[role-condition] y.service:2"}},
		"two such roles, of which one is said": {texts{x: own("storage"), y: own("storages") + "[X-Hardtack]\nRole=storages\n"},
			[]string{"[role-condition] x.service:2"}},
		"two such roles, both said": {texts{x: own("storage") + "[X-Hardtack]\nRole=storage\n",
			y: own("storages") + "[X-Hardtack]\nRole=storages\n"},
			nil},
		"two roles of other names": {texts{x: own("storage"), y: own("ingress"), "z.service": minion}, nil},
		// The finding is at the first condition that counts.
		"conditions that are taken back": {texts{x: strings.Replace(minion, "\nAfter", "\nConditionPathExists=\n"+
			"ConditionPathExists=/etc/sysconfig/kubernetes-masters\nConditionPathExists=/etc/sysconfig/kubernetes-minions\nAfter", 1)},
			[]string{"[role-condition] x.service:4"}},
		"the early boot's unit with the default dependencies": {texts{x: every + "[Unit]\nBefore=sysinit.target\n"},
			[]string{"[cycle] x.service:8"}},
		"a unit that another wants, and comes after it by a third": {texts{x: wantedBy(y) + "[Unit]\nAfter=z.service\n", y: every,
			"z.service": every + "[Unit]\nAfter=y.service\n"}, nil},
		"a service that wants another comes after it in no way": {texts{x: every + "[Unit]\nWants=y.service\n",
			y: every + "[Unit]\nAfter=z.service\n", "z.service": every + "[Unit]\nAfter=x.service\n"}, nil},
		// systemd puts these after the early boot, so that it does not put the early boot after them; and the target of the file systems
		// has no default dependencies. systemd 252 finds a cycle in the last one alone.
		"a unit that the early boot wants":   {texts{x: wantedBy("sysinit.target")}, nil},
		"a unit that the basic system wants": {texts{x: wantedBy("basic.target")}, nil},
		"a unit that the file systems want":  {texts{x: wantedBy("local-fs.target")}, nil},
		"a unit that the sockets want":       {texts{x: wantedBy("sockets.target")}, []string{"[cycle] x.service:6"}},
	} {
		if got := lint(t, tt.units); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// A file below /run is there for a unit that waits for it: by a condition that the path exists, and no other.
func TestLintAwaitedFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		file, condition string
		want            bool
	}{
		"no condition":            {"/run/x", "", true},
		"its condition":           {"/run/x", "ConditionPathExists=/run/x\n", false},
		"another file's":          {"/run/x", "ConditionPathExists=/run/y\n", true},
		"one of several":          {"/run/x", "ConditionPathExists=|/run/x\nConditionPathExists=|/run/y\n", true},
		"that it is not there":    {"/run/x", "ConditionPathExists=!/run/x\n", true},
		"one of another type":     {"/run/x", "ConditionPathIsDirectory=/run/x\n", true},
		"a file that stays there": {"/etc/x", "ConditionPathExists=/etc/x\n", true},
	} {
		got := lint(t, texts{"x.service": every + "[Service]\nEnvironmentFile=" + tt.file + "\n[Unit]\n" + tt.condition})
		if want := []string{"[environment] x.service:8"}; slices.Equal(got, want) != tt.want || len(got) > 1 {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Which programs and files a command line is found to need. Quotes are letters but at the beginning of a word (systemd.syntax(7),
// Quoting), and a semicolon ends a command only inside of a script.
func TestLintCommandLines(t *testing.T) {
	for line, want := range map[string][]string{
		`/usr/bin/good`: nil,
		`/usr/bin/good  --config=/etc/kubernetes/good`:           nil,
		`/usr/bin/good --config=/etc/kubernetes/bad /usr/bin/no`: {"/etc/kubernetes/bad", "/usr/bin/no"},
		"/usr/bin/good\t/usr/bin/no":                             {"/usr/bin/no"},
		`/usr/bin/good /run/made /etc/$NAME /etc/%i`:             nil,
		`-/usr/bin/no /etc/kubernetes/bad`:                       nil,
		`good`:                                                   {"good"},
		`""`:                                                     {"no program"},
		`/bin/sh -c 'exec /usr/bin/no'`:                          {"/usr/bin/no"},
		`/bin/sh -c "exec /usr/bin/no"`:                          {"/usr/bin/no"},
		`/bin/sh -c '/usr/bin/no;/usr/bin/good'`:                 {"/usr/bin/no"},
		`/bin/sh -c '/usr/bin/no' /usr/bin/good`:                 {"/usr/bin/no"},
		`/bin/sh -c 'true' a;/usr/bin/no`:                        nil,
		`/bin/sh -c 'a "b" ' a;/usr/bin/no`:                      nil,
		`/usr/bin/good --x='/usr/bin/no'`:                        nil,
		`/usr/bin/good a;/usr/bin/no`:                            nil,
	} {
		var found problem.List
		for _, p := range unit.Lint(load(t, texts{"x.service": minion + "[Service]\nExecStart=\nExecStart=" + line + "\n"}),
			paths{"/usr/bin/good", "/bin/sh", "/etc/kubernetes/good"}) {
			if p.Rule != unit.RuleExec || p.Line != 10 {
				t.Errorf("%s: %v", line, p)
			}
			found.Add(p)
		}
		if len(found) != len(want) {
			t.Errorf("%s: %v, want %q", line, found, want)
			continue
		}
		for i, p := range found {
			words := strings.FieldsFunc(p.Text, func(r rune) bool { return strings.ContainsRune(` ,`, r) })
			if !slices.Contains(words, want[i]) && !slices.Contains(words, `"`+want[i]+`"`) && !strings.HasSuffix(p.Text, want[i]) {
				t.Errorf("%s: %v, want %q", line, p, want[i])
			}
		}
	}
}

// everything is a tree that has every file.
type everything struct{}

func (everything) Has(string) bool { return true }

// A complete image has each unit by which a machine tells that it is ready, for the role whose readiness it is or for every
// machine. The units whose readiness nobody waits for may be missing.
func TestLintProfiles(t *testing.T) {
	shipped, found := unit.Load(units.FS)
	if len(found) > 0 {
		t.Fatal(found)
	}
	profiles := func(us []unit.Unit) (out problem.List) {
		for _, p := range unit.Lint(us, everything{}) {
			if p.Rule == unit.RuleProfile {
				out.Add(p)
			}
		}
		return out
	}
	if got := profiles(shipped); len(got) > 0 {
		t.Errorf("the shipped units: %v", got)
	}
	for _, r := range role.All() {
		for _, named := range r.Profile().Units {
			with := func(conditions ...string) []unit.Unit {
				out := slices.DeleteFunc(slices.Clone(shipped), func(u unit.Unit) bool { return u.Name == named.Name })
				for _, c := range conditions {
					u := unit.Unit{Name: named.Name, File: named.Name}
					section, rest, _ := strings.Cut(c, ":")
					name, value, _ := strings.Cut(rest, "=")
					u.Options = []unit.Option{{Section: section, Name: name, Value: value, File: named.Name, Line: 1}}
					out = append(out, u)
				}
				return out
			}
			waited := named.Proof != role.NoProof
			for what, tt := range map[string]struct {
				units []unit.Unit
				want  bool
			}{
				"missing":                   {with(), waited},
				"one of its role":           {with("Unit:ConditionPathExists=" + r.File()), false},
				"one of every machine":      {with("X-Hardtack:Role=any"), false},
				"one of no role":            {with("Unit:Description=x"), waited},
				"one of an operator's role": {with("Unit:ConditionPathExists=/etc/sysconfig/kubernetes-storage"), waited},
			} {
				got := slices.DeleteFunc(profiles(tt.units), func(p problem.Problem) bool {
					return !strings.Contains(p.Text, "role "+string(r)+" gets ready")
				})
				if tt.want != (len(got) == 1 && got[0].File == named.Name) || len(got) > 1 {
					t.Errorf("%s of %s, %s: %v", named.Name, r, what, got)
				}
				for _, p := range got {
					if there := strings.Contains(p.Hint, r.File()); there != (what != "missing") {
						t.Errorf("%s of %s, %s: %v", named.Name, r, what, p)
					}
				}
			}
		}
	}
	some := slices.DeleteFunc(slices.Clone(shipped), func(u unit.Unit) bool { return u.Name == unit.UserData || u.Name == "kubelet.service" })
	if got := profiles(some); len(got) > 0 {
		t.Errorf("units that are no whole image: %v", got)
	}
}

// Who listens where: Hardtack's own units may open their ports further, and units of roles that are on other machines share a number.
func TestLintPorts(t *testing.T) {
	const port = "[X-Hardtack]\nPort="
	for name, tt := range map[string]struct {
		units texts
		want  []string
	}{
		"of every machine":    {texts{"x.service": every + port + "9100/tcp minions\n"}, nil},
		"Hardtack's unit":     {texts{"kubelet.service": minion + port + "10250/tcp 10.0.0.0/8\n"}, nil},
		"Hardtack's port":     {texts{"x.service": minion + port + "10250/tcp 10.0.0.0/8\n"}, []string{"[port] x.service:9"}},
		"another role's port": {texts{"x.service": minion + port + "2379/tcp 10.0.0.0/8\n"}, nil},
		"two units": {texts{"x.service": minion + port + "80/tcp minions\n", "y.service": minion + port + "80/tcp minions\n"},
			[]string{"[port] y.service:9"}},
		"two units, two protocols": {texts{"x.service": minion + port + "80/tcp minions\n", "y.service": minion + port + "80/udp minions\n"},
			nil},
		"one unit, for two roles": {texts{"x.service": minion + port + "80/tcp minions\nPort=80/tcp masters\n"}, nil},
		"a key that is none":      {texts{"x.service": minion + port + "80/tcp minions\nWibble=1\n"}, []string{"[port] x.service:10"}},
	} {
		if got := lint(t, tt.units); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	for key, hint := range map[string]string{"Wibble": "Port and Role", "Prot": "Port="} {
		found := unit.Lint(load(t, texts{"x.service": minion + "[X-Hardtack]\n" + key + "=1\n"}), everything{})
		if len(found) != 1 || !strings.HasSuffix(strings.TrimSuffix(found[0].Hint, "?"), hint) {
			t.Errorf("%s: %v", key, found)
		}
	}
}
