package bake

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// The lines are what systemd 257 and 252 print.
func TestParseVerify(t *testing.T) {
	ours := func(unit string) bool {
		return slices.Contains([]string{"etcd.service", "kubelet.service", "/usr/lib/systemd/system/kubelet.service"}, unit)
	}
	const drop = "systemd would drop a job to break the cycle"
	for name, test := range map[string]struct {
		text string
		want problem.List
	}{
		"nothing": {"\n", nil},
		"cycle": {"multi-user.target: Found ordering cycle on cloud-final.service/start\n",
			problem.List{{File: "multi-user.target", Severity: problem.Error, Text: "Found ordering cycle on cloud-final.service/start", Hint: drop}}},
		"deleted job": {"multi-user.target: Job etcd.service/start deleted to break ordering cycle starting with multi-user.target/start\n",
			problem.List{{File: "multi-user.target", Severity: problem.Error, Hint: drop,
				Text: "Job etcd.service/start deleted to break ordering cycle starting with multi-user.target/start"}}},
		"directive of ours, twice": {
			"/usr/lib/systemd/system/kubelet.service:7: Unknown key 'Foo' in section [Service], ignoring.\n" +
				"/usr/lib/systemd/system/kubelet.service:7: Unknown key 'Foo' in section [Service], ignoring.\n",
			problem.List{{File: "/usr/lib/systemd/system/kubelet.service", Line: 7, Severity: problem.Error, Text: "Unknown key 'Foo' in section [Service], ignoring."}}},
		"directive of the distribution's": {"/usr/lib/systemd/system/x.service:12: Unknown key 'Foo' in section [Service], ignoring.\n",
			problem.List{{File: "/usr/lib/systemd/system/x.service", Line: 12, Severity: problem.Warning, Text: "Unknown key 'Foo' in section [Service], ignoring."}}},
		"program of ours": {"etcd.service: Command /usr/bin/etcd is not executable: No such file or directory\n",
			problem.List{{File: "etcd.service", Severity: problem.Error, Text: "Command /usr/bin/etcd is not executable: No such file or directory"}}},
		"a unit that ours needs": {"Failed to add dependency on gone.service, ignoring: Unit kubelet.service not found\n",
			problem.List{{Severity: problem.Error, Text: "Failed to add dependency on gone.service, ignoring: Unit kubelet.service not found"}}},
		"something else": {"Failed to do something\n", problem.List{{Severity: problem.Warning, Text: "Failed to do something"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range test.want {
				test.want[i].Rule = "systemd"
			}
			if d := cmp.Diff(test.want, parseVerify(test.text, ours)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestParseStatRefusesWhatIsNot(t *testing.T) {
	for _, out := range []string{"x\x00", "81a4\t0:0\tmany\t/a\t/a\x00", "zz\t0:0\t1\t/a\t/a\x00"} {
		if err := parseStat(out, map[string]observation{}); err == nil {
			t.Errorf("%q was taken for a line of stat", out)
		}
	}
}
