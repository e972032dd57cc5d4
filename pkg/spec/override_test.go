package spec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// known is what is committed about a minor version.
type known struct {
	Flags     map[string]map[string]spec.UpstreamFlag
	Documents map[string]struct {
		Fields   map[string]string
		Defaults map[string]any
	}
}

func readKnown(t *testing.T, version string) known {
	t.Helper()
	data, err := os.ReadFile("upstream/" + version + ".json")
	assert.NilError(t, err)
	var k known
	assert.NilError(t, json.Unmarshal(data, &k))
	return k
}

// other is a value of the flag's type that is not its default.
func other(f spec.UpstreamFlag) any {
	switch f.Type {
	case "bool":
		return f.Default != "true"
	case "int", "int32", "uint", "Level":
		n, _ := strconv.Atoi(f.Default)
		return n + 1
	case "float", "float32":
		return "0.125"
	case "duration":
		return "77s"
	case "ip":
		return "192.0.2.7"
	case "strings", "stringArray", "namedCertKey":
		return []any{"one", "two"}
	}
	return "other"
}

// machines are one group for each role, so that what reaches only one is seen.
const machines = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups:\n" +
	"- {name: masters, roles: [masters]}\n- {name: minions, roles: [minions]}\n- {name: etcd, roles: [etcd], members: [a]}\n"

// sensible are the values of flags and fields with which a cluster works, where not any other value will do; nil is for a
// flag that cannot be beside the others.
var sensible = map[string]any{
	"kubeControllerManager.node-cidr-mask-size": 25, "kubeControllerManager.node-cidr-mask-size-ipv4": nil, "kubelet.maxPods": 200,
	"kubelet.cloud-provider": "external", "kubeControllerManager.cloud-provider": "external",
	// They follow from fields of the cluster.
	"kubeAPIServer.secure-port": nil, "kubeAPIServer.service-cluster-ip-range": nil, "kubeControllerManager.service-cluster-ip-range": nil,
	"kubeControllerManager.cluster-cidr": nil, "kubeProxy.clusterCIDR": nil, "kubelet.clusterDomain": nil,
	// Others know where the daemons listen.
	"kubeControllerManager.secure-port": nil, "kubeScheduler.secure-port": nil, "konnectivityAgent.port": nil,
	"kubelet.port": nil, "kubelet.healthz-port": nil, "kubelet.healthzPort": nil,
	"kubeAPIServer.bind-address": "::", "kubeControllerManager.bind-address": "0.0.0.0", "kubeScheduler.bind-address": "0.0.0.0",
	"konnectivityServer.agents": "0.0.0.0:8132", "konnectivityServer.metrics": ":8133", "etcd.listen-metrics-urls": "http://0.0.0.0:2381",
	"kubelet.address": "::", "kubelet.healthz-bind-address": "0.0.0.0", "kubelet.healthzBindAddress": "0.0.0.0", "kubeProxy.healthzBindAddress": ":10256",
}

// Every flag of every component, of every minor version, can be overridden, all of them at once: each is on
// the command line that systemd makes, once or last, with the value that is written.
func TestEveryFlagCanBeOverridden(t *testing.T) {
	for _, version := range spec.Versions() {
		t.Run(version, func(t *testing.T) {
			overrides := map[string]any{}
			k := readKnown(t, version)
			for field, flags := range k.Flags {
				values := map[string]any{}
				for name, f := range flags {
					value, special := sensible[field+"."+name]
					if !special {
						value = other(f)
					}
					if f.Note != "ignored" && !spec.Decided(field, name) && value != nil {
						values[name] = value
					}
				}
				overrides[field] = map[string]any{"flags": values}
			}
			data, err := yaml.Marshal(overrides)
			assert.NilError(t, err)
			c := complete(t, machines+"version: "+version+"\n"+string(data))
			guests := map[string]guest{}
			for _, g := range c.Groups {
				guests[g.Name] = newGuest(t, c, g)
			}
			for field := range helpParsers {
				program := spec.Program(field)
				args := guests[groupOf(t, program)].arguments(t, program+".service", program)
				for flag, value := range overrides[field].(map[string]any)["flags"].(map[string]any) {
					checkGiven(t, program, args, flag, value, k.Flags[field][flag])
				}
			}
		})
	}
}

// groupOf names the group whose machines run the program's unit.
func groupOf(t *testing.T, program string) string {
	t.Helper()
	us, problems := unit.Load(units.FS)
	assert.NilError(t, problems.Err())
	i := slices.IndexFunc(us, func(u unit.Unit) bool { return u.Name == program+".service" })
	assert.Assert(t, i >= 0, "no unit runs %s", program)
	r, _ := us[i].Role()
	if r == role.Etcd {
		return "etcd-a"
	}
	return string(r)
}

// checkGiven looks for a flag among the arguments. One that is a list must stand there alone, since the
// program would add up what it is given.
func checkGiven(t *testing.T, program string, args []string, flag string, value any, f spec.UpstreamFlag) {
	t.Helper()
	var found []string
	for _, a := range args {
		if a == "--"+flag {
			found = append(found, "true")
		}
		if v, ok := strings.CutPrefix(a, "--"+flag+"="); ok {
			found = append(found, v)
		}
	}
	want := []string{fmt.Sprint(value)}
	if list, ok := value.([]any); ok {
		if want = []string{"one,two"}; f.Type != "strings" {
			want = []string{"one", "two"}
		}
		assert.Assert(t, len(list) == 2 && slices.Equal(found, want), "%s gets --%s as %q, want %q", program, flag, found, want)
		return
	}
	assert.Assert(t, len(found) > 0 && found[len(found)-1] == want[0], "%s gets --%s as %q, want %q", program, flag, found, want)
}

// otherValue is a value of a field's type that is not v; ok is false for one that is left alone.
func otherValue(kind string, v any) (value any, ok bool) {
	switch {
	case kind == "bool":
		return v != true, true
	case kind == "string":
		return "other", true
	case strings.HasPrefix(kind, "int") && kind != "int or string", strings.HasPrefix(kind, "uint"), strings.HasPrefix(kind, "float"):
		return 12345, true
	case kind == "duration":
		return "77s", true
	}
	return nil, false
}

// Every field of every document can be overridden, all at once: the file on the machine has it.
func TestEveryFieldCanBeOverridden(t *testing.T) {
	paths := map[string]string{"kubelet": "/etc/kubernetes/kubelet.yaml", "kubeProxy": "/etc/kubernetes/kube-proxy.yaml", "kubeScheduler": "/etc/kubernetes/kube-scheduler.yaml"}
	for _, version := range spec.Versions() {
		k := readKnown(t, version)
		for field, path := range paths {
			t.Run(version+"/"+field, func(t *testing.T) {
				want := map[string]any{}
				config := map[string]any{}
				for name, kind := range k.Documents[field].Fields {
					value, ok := otherValue(kind, at(k.Documents[field].Defaults, name))
					if !ok || strings.ContainsAny(name, "[*") {
						continue
					}
					if good, special := sensible[field+"."+name]; special {
						value = good
					}
					if value == nil {
						continue
					}
					want[name] = value
					put(config, name, value)
				}
				assert.Assert(t, len(want) > 20, "only %v", want)
				data, err := yaml.Marshal(map[string]any{field: map[string]any{"config": config}})
				assert.NilError(t, err)
				c := complete(t, machines+"version: "+version+"\n"+string(data))
				group := c.Groups[1]
				if field == "kubeScheduler" {
					group = c.Groups[0]
				}
				var got map[string]any
				assert.NilError(t, yaml.Unmarshal([]byte(newGuest(t, c, group).files[path]), &got))
				for name, value := range want {
					assert.DeepEqual(t, at(got, name), value)
				}
			})
		}
	}
}

// Every setting that containerd prints as its default can be overridden, too.
func TestEveryContainerdFieldCanBeOverridden(t *testing.T) {
	defaults := readKnown(t, spec.DefaultVersion).Documents["containerd"].Defaults
	config := changed(defaults).(map[string]any)
	delete(config, "version")
	data, err := yaml.Marshal(map[string]any{"containerd": map[string]any{"config": config}})
	assert.NilError(t, err)
	c := complete(t, machines+string(data))
	var got map[string]any
	assert.NilError(t, toml.Unmarshal([]byte(newGuest(t, c, c.Groups[1]).files["/etc/containerd/config.toml"]), &got))
	within(t, "", config, got)
}

// changed is a tree with every leaf another.
func changed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			out[key] = changed(value)
		}
		return out
	case bool:
		return !v
	case float64:
		return int64(v) + 1
	case []any:
		return []any{"other"}
	}
	return "other"
}

// within checks that every leaf of want is in got.
func within(t *testing.T, path string, want, got map[string]any) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(want)) {
		deep, ok := want[key].(map[string]any)
		if !ok {
			assert.DeepEqual(t, got[key], want[key])
			continue
		}
		if len(deep) > 0 {
			below, ok := got[key].(map[string]any)
			assert.Assert(t, ok, "%s.%s is %v", path, key, got[key])
			within(t, path+"."+key, deep, below)
		}
	}
}

func at(tree map[string]any, path string) any {
	var value any = tree
	for name := range strings.SplitSeq(path, ".") {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	return value
}

func put(tree map[string]any, path string, value any) {
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		deep, ok := tree[name].(map[string]any)
		if !ok {
			deep = map[string]any{}
			tree[name] = deep
		}
		tree = deep
	}
	tree[names[len(names)-1]] = value
}
