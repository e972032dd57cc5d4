package unit_test

import (
	"encoding/json"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/units"

	"gotest.tools/v3/golden"
)

// contract is what the profile of a role says that it runs, but for the unit that every machine runs.
func contract(r role.Role) []string {
	var names []string
	for _, u := range r.Profile().Units {
		if u.Name != "hardtack-node.service" {
			names = append(names, u.Name)
		}
	}
	slices.Sort(names)
	return names
}

func realTable(t *testing.T) unit.Table {
	t.Helper()
	us, problems := unit.Load(units.FS)
	if len(problems) > 0 {
		t.Fatal(problems.Err())
	}
	return unit.NewTable(us)
}

// TestTableIsTheContract holds every unit in every combination against the contract: role files add up,
// and only the reader of user data runs without one, and fails.
func TestTableIsTheContract(t *testing.T) {
	table := realTable(t)
	if want := 1 << len(role.All()); len(table.Combinations) != want {
		t.Fatalf("%d combinations, want %d", len(table.Combinations), want)
	}
	for _, set := range role.Combinations() {
		t.Run(set.String(), func(t *testing.T) {
			var starts, skips, fails []string
			for _, r := range role.All() {
				if set.Has(r) {
					starts = append(starts, contract(r)...)
				} else {
					skips = append(skips, contract(r)...)
				}
			}
			// A machine without a role needs no name, and nobody to say when its roles work.
			if len(set) == 0 {
				skips, fails = append(skips, "hardtack-node.service", "hardtack-ready.service"), append(fails, unit.UserData)
			} else {
				starts = append(starts, "hardtack-node.service", "hardtack-ready.service")
			}
			starts = append(starts, unit.UserData)
			got, _ := table.Combination(set)
			for _, c := range []struct {
				what      string
				got, want []string
			}{{"starts", got.Starts, starts}, {"skips", got.Skips, skips}, {"fails", got.Fails, fails}} {
				if !slices.Equal(c.got, c.want) {
					t.Errorf("%s %v, want %v", c.what, c.got, c.want)
				}
			}
		})
	}
}

// TestEveryServiceIsInTheTable would find a unit that is not enabled, and so in no combination. What a timer starts is no
// part of a boot.
func TestEveryServiceIsInTheTable(t *testing.T) {
	names, err := fs.Glob(units.FS, "*.service")
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := fs.Stat(units.FS, strings.TrimSuffix(name, ".service")+".timer")
		return err == nil
	})
	var rows []string
	for _, row := range realTable(t).Units {
		rows = append(rows, row.Unit)
	}
	slices.Sort(rows)
	if !slices.Equal(rows, names) {
		t.Errorf("table has %v, the directory %v", rows, names)
	}
}

// TestPresetsEnableEveryUnit would find a unit that the image has a link for, and that the first boot disables.
func TestPresetsEnableEveryUnit(t *testing.T) {
	preset, err := fs.ReadFile(images.FS, "rootfs/usr/lib/systemd/system-preset/10-hardtack.preset")
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for line := range strings.Lines(string(preset)) {
		if pattern, ok := strings.CutPrefix(strings.TrimSpace(line), "enable "); ok {
			patterns = append(patterns, pattern)
		}
	}
	for _, row := range realTable(t).Units {
		enabled := slices.ContainsFunc(patterns, func(pattern string) bool {
			ok, err := path.Match(pattern, row.Unit)
			return ok && err == nil
		})
		if !enabled {
			t.Errorf("units/%s: add a line enable %[1]s to the preset", row.Unit)
		}
	}
}

// TestTableJSON keeps the names and the empty lists that readers of the JSON count on.
func TestTableJSON(t *testing.T) {
	data, err := json.MarshalIndent(realTable(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "null") {
		t.Error("the JSON has a null, where readers expect a list")
	}
	golden.Assert(t, string(data)+"\n", "table.golden.json")
}

// TestRoleFilesOfTheSeed sees to it that the units take the seed's role file word for word: each of its
// names is passed on by the kubelet, and CLUSTER_NAME is known to who needs it.
func TestRoleFilesOfTheSeed(t *testing.T) {
	us, _ := unit.Load(units.FS)
	for _, u := range us {
		r, ok := u.Role()
		if !ok {
			continue
		}
		if u.Name == "containerd.service" || strings.HasPrefix(u.Name, "hardtack-") {
			continue // they take no settings from the role file, or read it themselves
		}
		files := u.Values("Service", "EnvironmentFile")
		// But for what the agent takes back of it, since the daemon would not start.
		corrected := []string{"-/run/hardtack/corrected.env", "/run/hardtack/etcd/member"}
		if last := len(files) - 1; last > 0 && slices.Contains(corrected, files[last].Value) {
			files = files[:last]
		}
		if len(files) == 0 || files[len(files)-1].Value != r.File() {
			t.Errorf("%s: the last EnvironmentFile must be %s, so that the role file has the last word: %v", u.Name, r.File(), files)
		}
	}
	words := map[string][]string{
		"kubelet.service":                 {"$CLOUD_PROVIDER", "$KUBELET_HOSTNAME", "$KUBELET_ARGS"},
		"kube-proxy.service":              {"$KUBELET_HOSTNAME"},
		"kube-controller-manager.service": {"$CLOUD_PROVIDER", "--cluster-name=${CLUSTER_NAME}"},
	}
	for _, u := range us {
		line := strings.Fields(u.Value("Service", "ExecStart").Value)
		for _, word := range words[u.Name] {
			if !slices.Contains(line, word) {
				t.Errorf("%s does not pass on %s as a word of its own", u.Name, word)
			}
		}
	}
}
