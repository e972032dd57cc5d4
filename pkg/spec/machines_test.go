package spec_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

const machinesHead = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

// groupFiles are the files of a group's user data by their paths.
func groupFiles(tb testing.TB, text, group string) map[string]string {
	tb.Helper()
	files, err := complete(tb, machinesHead+text).Files(group, nil)
	assert.NilError(tb, err)
	found := map[string]string{}
	for _, f := range files {
		found[f.Path] = string(f.Content)
	}
	return found
}

// oneFault asserts that a document has one finding, and which one.
func oneFault(t *testing.T, text, want string) {
	t.Helper()
	found := findings(t, machinesHead+text)
	assert.Equal(t, len(found), 1, "%s\n%v", text, found)
	assert.Assert(t, strings.HasPrefix(found[0].String(), "cluster.yaml:"+want), "%s\nwant cluster.yaml:%s", found[0], want)
}

const (
	optionsUnit = "/etc/systemd/system/hardtack-options.service"
	needsUnit   = "[Unit]\nRequires=hardtack-options.service\nAfter=hardtack-options.service\n"
)

// TestKernelOptions: settings and modules of the kernel are files that systemd knows, and a unit that applies them before the daemons.
func TestKernelOptions(t *testing.T) {
	const text = `machines:
  sysctls: {net.core.somaxconn: 5000, net.ipv4.conf.eth0.rp_filter: "2", -kernel.of_mine: a  b}
  kernelModules: [{name: nbd, parameters: nbds_max=3 max_part=2}, {name: -of-mine}]
`
	files := groupFiles(t, text, "minions")
	for name, want := range map[string]string{
		"/etc/sysctl.d/60-hardtack-spec.conf":                               "-kernel.of_mine = a  b\nnet.core.somaxconn = 5000\nnet.ipv4.conf.eth0.rp_filter = 2\n",
		"/etc/modules-load.d/60-hardtack-spec.conf":                         "nbd\n",
		"/etc/modprobe.d/60-hardtack-spec.conf":                             "options nbd nbds_max=3 max_part=2\n",
		"/etc/systemd/system/containerd.service.d/60-hardtack-options.conf": needsUnit,
	} {
		assert.Equal(t, files[name], want, name)
	}
	for _, want := range []string{
		"After=hardtack-userdata.service\n", "ExecStart=-/usr/sbin/modprobe --quiet of-mine\n",
		"ExecStart=/usr/lib/systemd/systemd-modules-load /etc/modules-load.d/60-hardtack-spec.conf\n",
		"ExecStart=/usr/lib/systemd/systemd-sysctl --strict /etc/sysctl.d/60-hardtack-spec.conf\n",
	} {
		assert.Assert(t, strings.Contains(files[optionsUnit], want), "%s\nhas no %s", files[optionsUnit], want)
	}
	control := groupFiles(t, text, "masters")
	for _, name := range []string{"kube-apiserver", "etcd"} {
		assert.Equal(t, control["/etc/systemd/system/"+name+".service.d/60-hardtack-options.conf"], needsUnit)
	}
	for name, of := range map[string]map[string]string{"a default minion": groupFiles(t, "", "minions"), "a default master": groupFiles(t, "", "masters")} {
		assert.Equal(t, of[optionsUnit], "", name)
	}
}

// TestOptionsUnit has systemd's own program read the unit, with every option in it.
func TestOptionsUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed (Debian's package systemd)")
	}
	text := "machines:\n  sysctls: {net.core.somaxconn: 5000}\n  kernelModules: [{name: nbd}]\n  trustAnchors: [" + anchor(t) + "]\n" +
		"network: {nonMasqueradeCIDRs: [10.0.0.0/12]}\n"
	unit := groupFiles(t, text, "minions")[optionsUnit]
	// The programs of the image need not be on this machine, and its units are not.
	unit = strings.NewReplacer("/usr/sbin/", "/bin/sh -c ", "/usr/lib/systemd/systemd-", "/bin/sh -c ").Replace(unit)
	assert.Equal(t, strings.Count(unit, "ExecStart=/bin/sh"), 4, unit)
	file := filepath.Join(t.TempDir(), "hardtack-options.service")
	assert.NilError(t, os.WriteFile(file, []byte(unit), 0o600))
	out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", "--recursive-errors=no", file).CombinedOutput()
	assert.NilError(t, err, "%s\n%s", out, unit)
	assert.Assert(t, !strings.Contains(string(out), "hardtack-options.service:"), "%s\n%s", out, unit)
}

// TestKernelFaults: what the kernel or the kubelet would refuse is refused before there is a machine.
func TestKernelFaults(t *testing.T) {
	const head = "machines:\n  "
	for text, want := range map[string]string{
		"sysctls: {net/core/somaxconn: 1}":                    `5: machines.sysctls.net/core/somaxconn: "net/core/somaxconn" is a path, and a setting is named with dots (write net.core.somaxconn)`,
		"sysctls: {somaxconn: 1}":                             `5: machines.sysctls.somaxconn: "somaxconn" is not the name of a setting, such as net.core.somaxconn`,
		"sysctls: {net.core.somaxconn: ''}":                   `5: machines.sysctls["net.core.somaxconn"]: "" is not a value of one line`,
		"sysctls: {vm.overcommit_memory: 2}":                  `5: machines.sysctls["vm.overcommit_memory"]: vm.overcommit_memory stays 1: the kubelet does not start with another value (leave it out)`,
		"sysctls: {-net.ipv4.ip_forward: 0}":                  `5: machines.sysctls["-net.ipv4.ip_forward"]: net.ipv4.ip_forward stays 1: packets of pods are forwarded (leave it out)`,
		"sysctls: {fs.nr_open: 1000}":                         `5: machines.sysctls["fs.nr_open"]: 1000 is below the 1048576 of`,
		"kernelModules: [{name: wiregard}]":                   `5: machines.kernelModules[0].name: the image's kernel has no module wiregard (did you mean "wireguard"?; write -wiregard where`,
		"kernelModules: [{parameters: a=1}]":                  `5: machines.kernelModules[0].name: is missing`,
		"kernelModules: [{name: a b}]":                        `5: machines.kernelModules[0].name: "a b" is not the name of a module`,
		"kernelModules: [{name: nbd}, {name: nbd}]":           `5: machines.kernelModules[1].name: module nbd is already at machines.kernelModules[0]`,
		"kernelModules: [{name: nbd, parameters: \"a\\nb\"}]": `5: machines.kernelModules[0].parameters: "a\nb" is not one line`,
		"nofile: 100": `5: machines.nofile: 100 is not between 1024 and 2147483584 files`,
	} {
		oneFault(t, head+text+"\n", want)
	}
	// What the image has already may be written.
	complete(t, machinesHead+head+"sysctls: {vm.overcommit_memory: 1, net.ipv4.ip_forward: 1}\n")
	for path, field := range map[string]string{
		"/etc/sysctl.d/60-hardtack-spec.conf":                              "machines.sysctls",
		"/etc/modprobe.d/60-hardtack-spec.conf":                            "machines.kernelModules",
		"/etc/systemd/system/containerd.service.d/60-hardtack-limits.conf": "machines.nofile",
		"/etc/systemd/system/kubelet.service.d/60-hardtack-proxy.conf":     "proxy",
		"/etc/systemd/system/etcd.service.d/60-hardtack-options.conf":      "machines",
		"/etc/hardtack/trust-anchors/mine.crt":                             "machines.trustAnchors",
		"/etc/hardtack/masquerade.nft":                                     "network.nonMasqueradeCIDRs",
		"/etc/systemd/timesyncd.conf.d/50-hardtack-spec.conf":              "network.timeServers",
	} {
		oneFault(t, "fileAssets: [{path: "+path+", content: x}]\n", "4: fileAssets[0].path: "+path+" is written by Hardtack itself (say it in "+field+")")
	}
	oneFault(t, "hooks: [{name: hardtack-options, manifest: ExecStart=/bin/true}]\n", "4: hooks[0].name: unit hardtack-options.service is already at machines")
}

// TestNofile: a limit above the kernel's own raises that too, and one that is the image's changes nothing.
func TestNofile(t *testing.T) {
	const limits = "/etc/systemd/system/containerd.service.d/60-hardtack-limits.conf"
	const settings = "/etc/sysctl.d/60-hardtack-spec.conf"
	files := groupFiles(t, "machines: {nofile: 65536}\n", "minions")
	assert.Equal(t, files[limits], "[Service]\nLimitNOFILE=65536\n")
	assert.Equal(t, files[settings], "")
	files = groupFiles(t, "machines: {nofile: 4194304}\n", "minions")
	assert.Equal(t, files[limits], "[Service]\nLimitNOFILE=4194304\n")
	assert.Equal(t, files[settings], "fs.nr_open = 4194304\n")
	c := complete(t, machinesHead+"machines: {nofile: 4194304}\n")
	assert.Equal(t, c.Origins[`machines.sysctls["fs.nr_open"]`].String(), "derived (machines.nofile)")
	for _, none := range []map[string]string{groupFiles(t, "machines: {nofile: 1048576}\n", "minions"), groupFiles(t, "machines: {nofile: 65536}\n", "masters")} {
		assert.Equal(t, none[limits], "", slices.Collect(maps.Keys(none)))
	}
}

// TestKernelNames: the names are sorted and each is there once, so that a difference is seen in a review.
func TestKernelNames(t *testing.T) {
	names := spec.KernelModules()
	assert.Assert(t, len(names) > 500)
	assert.DeepEqual(t, names, slices.Compact(slices.Sorted(slices.Values(names))))
	for _, name := range []string{"overlay", "br_netfilter", "vxlan", "nf_tables", "nf_conntrack"} {
		assert.Assert(t, slices.Contains(names, name), "the image loads %s", name)
	}
}
