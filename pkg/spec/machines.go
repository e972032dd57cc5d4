package spec

import (
	_ "embed"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Machines is what all machines of a cluster get beside the image's own settings, whatever their roles.
type Machines struct {
	// Sysctls are settings of the kernel by their names, as in net.core.somaxconn. A machine whose kernel does not have one does not start the
	// daemons of its roles, unless there is a "-" before the name.
	Sysctls map[string]string `yaml:"sysctls"`
	// KernelModules are modules that the kernel loads before the daemons of a role start.
	KernelModules []KernelModule `yaml:"kernelModules"`
	// Nofile is how many files each process of a pod may have open, unless it lowers that itself: LimitNOFILE of containerd.
	Nofile int `yaml:"nofile"`
	// TrustAnchors are certificates of authorities in PEM that every program of a machine trusts, beside those of Debian. Pods have their own.
	TrustAnchors []string `yaml:"trustAnchors"`
}

// KernelModule is a module of the kernel.
type KernelModule struct {
	// Name is the module's name. One that the image's kernel does not have is refused; a "-" before the name loads it only where the machine's
	// kernel has it.
	Name string `yaml:"name"`
	// Parameters are the module's parameters, as modprobe takes them: nbds_max=4.
	Parameters string `yaml:"parameters"`
}

// The files of the kernel's settings and modules. What comes later in the alphabet wins, and the image has 50-hardtack.conf.
const (
	sysctlFile      = "/etc/sysctl.d/60-hardtack-spec.conf"
	modulesFile     = "/etc/modules-load.d/60-hardtack-spec.conf"
	modprobeFile    = "/etc/modprobe.d/60-hardtack-spec.conf"
	limitsFile      = "60-hardtack-limits.conf"
	imageSysctlFile = "usr/lib/sysctl.d/50-hardtack.conf"
)

const (
	// usualNofile is LimitNOFILE of the image's containerd, and the kernel's own fs.nr_open, above which it allows no limit.
	usualNofile = 1 << 20
	leastNofile = 1024
	// mostNofile is the most that the kernel takes for fs.nr_open (sysctl_nr_open_max in fs/file.c).
	mostNofile = 1<<31 - 64

	openFiles = "fs.nr_open"
)

// modulesText has the names of the modules of the image's kernel, Debian 13's for clouds on amd64 (6.12.118), from its modules.dep and
// modules.builtin on the image's disk, sorted. TestUnitsOfUserData of pkg/e2e compares it with a booted machine.
//
//go:embed kernel/modules.txt
var modulesText string

// KernelModules are the names of the modules of the image's kernel, sorted, with what is built in.
func KernelModules() []string { return slices.Clone(kernelModules()) }

var kernelModules = sync.OnceValue(func() []string { return strings.Fields(modulesText) })

var (
	sysctlForm = regexp.MustCompile(`^[a-z0-9_-]+(\.[A-Za-z0-9_*@-]+)+$`)
	moduleForm = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// keptSysctls are settings of the image that a document does not change: those that the kubelet sets or asks for (setupKernelTunables in
// pkg/kubelet/cm/container_manager_linux.go), and those without which pods have no network.
var keptSysctls = map[string]string{
	"kernel.keys.root_maxbytes":           "the kubelet does not start with another value",
	"kernel.keys.root_maxkeys":            "the kubelet does not start with another value",
	"kernel.panic":                        "the kubelet does not start with another value",
	"kernel.panic_on_oops":                "the kubelet does not start with another value",
	"vm.overcommit_memory":                "the kubelet does not start with another value",
	"vm.panic_on_oom":                     "the kubelet does not start with another value",
	"net.ipv4.ip_forward":                 "packets of pods are forwarded",
	"net.ipv6.conf.all.forwarding":        "packets of pods are forwarded",
	"net.bridge.bridge-nf-call-iptables":  "packets between pods pass the rules of Services",
	"net.bridge.bridge-nf-call-ip6tables": "packets between pods pass the rules of Services",
}

// machines completes what all machines get.
func (f *completer) machines() {
	f.nofile()
	f.sysctls()
	f.kernelModules()
	f.trustAnchors()
}

func (f *completer) nofile() {
	const field = "machines.nofile"
	n := orDefault(f, field, f.in.Machines.Nofile, usualNofile, Origin{Default, "units/" + containerdUnit})
	f.out.Cluster.Machines.Nofile = n
	switch {
	case n < leastNofile || n > mostNofile:
		f.errorf(field, "%d is not between %d and %d files", n, leastNofile, mostNofile)
	case n > usualNofile:
		f.warn(field, "", "%d: programs that close every possible file at their start, as some daemons do, take the longer the more there are", n)
	}
}

func (f *completer) sysctls() {
	const field = "machines.sysctls"
	image, err := f.image.sysctls()
	if err != nil {
		f.errorf(field, "%v", err)
		return
	}
	out := maps.Clone(f.in.Machines.Sysctls)
	if out == nil {
		out = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		out[name] = strings.TrimSpace(out[name])
		f.out.Origins[join(field, name)] = Origin{Kind: User}
		f.sysctl(join(field, name), name, out[name], image)
	}
	f.openFiles(field, out)
	if len(out) == 0 {
		f.out.Origins[field] = byHardtack
	}
	f.out.Cluster.Machines.Sysctls = out
}

// sysctl checks one setting.
func (f *completer) sysctl(field, written, value string, image map[string]string) {
	name := strings.TrimPrefix(written, "-")
	reason, kept := keptSysctls[name]
	switch {
	case value == "" || strings.ContainsAny(value, "\n\r\x00"):
		f.errorf(field, "%q is not a value of one line", value)
	case strings.Contains(name, "/"):
		f.hint(field, "write "+strings.ReplaceAll(name, "/", "."), "%q is a path, and a setting is named with dots", name)
	case !sysctlForm.MatchString(name):
		f.errorf(field, "%q is not the name of a setting, such as net.core.somaxconn", name)
	case kept && value != image[name]:
		f.hint(field, "leave it out", "%s stays %s: %s", name, image[name], reason)
	}
}

// openFiles adds the kernel's bound of open files where nofile is above the usual one, and refuses one that is below it: systemd does not
// start a unit whose limit is above that.
func (f *completer) openFiles(field string, out map[string]string) {
	need := f.out.Cluster.Machines.Nofile
	given, ok := out[openFiles]
	n, err := strconv.Atoi(given)
	switch {
	case ok && (err != nil || n < max(need, usualNofile)):
		f.hint(join(field, openFiles), "leave it out", "%s is below the %d of the daemons' units and of machines.nofile, which then would not start", given, max(need, usualNofile))
	case !ok && need > usualNofile:
		out[openFiles] = strconv.Itoa(need)
		fallthrough
	case ok && n == need && need > usualNofile:
		f.out.Origins[join(field, openFiles)] = Origin{Derived, "machines.nofile"}
	}
}

func (f *completer) kernelModules() {
	const field = "machines.kernelModules"
	out := []KernelModule{}
	seen := map[string]int{}
	for i, m := range f.in.Machines.KernelModules {
		at := at(field, i)
		f.out.Origins[at+".name"] = Origin{Kind: User}
		m.Parameters = orDefault(f, at+".parameters", strings.TrimSpace(m.Parameters), "", byHardtack)
		name, optional := strings.CutPrefix(m.Name, "-")
		known := strings.ReplaceAll(name, "-", "_") // as the kernel does
		first, twice := seen[known]
		switch {
		case m.Name == "":
			f.errorf(at+".name", "is missing")
		case !moduleForm.MatchString(name):
			f.errorf(at+".name", "%q is not the name of a module", name)
		case twice:
			f.errorf(at+".name", "module %s is already at %s[%d]", name, field, first)
		case !optional && !slices.Contains(kernelModules(), known):
			hint := near.DidYouMean(known, kernelModules())
			f.hint(at+".name", strings.TrimPrefix(hint+"; write -"+name+" where the kernel of your image has it", "; "), "the image's kernel has no module %s", name)
		}
		if strings.ContainsAny(m.Parameters, "\n\r\x00\\") {
			f.errorf(at+".parameters", "%q is not one line", m.Parameters)
		}
		seen[known] = i
		out = append(out, m)
	}
	if len(out) == 0 {
		f.out.Origins[field] = byHardtack
	}
	f.out.Cluster.Machines.KernelModules = out
}

// sysctls are the kernel settings of the image.
func (img *Image) sysctls() (map[string]string, error) {
	data, err := fs.ReadFile(img.rootfs, imageSysctlFile)
	if err != nil {
		return nil, fmt.Errorf("reading the image's kernel settings: %w", err)
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return settings, nil
}

// kernelFiles are the files of the kernel's settings and modules, and what applies them.
func (m Machines) kernelFiles() (files []File, commands []string) {
	var load, parameters strings.Builder
	for _, k := range m.KernelModules {
		name, optional := strings.CutPrefix(k.Name, "-")
		if optional {
			commands = append(commands, "-/usr/sbin/modprobe --quiet "+name)
		} else {
			load.WriteString(name + "\n")
		}
		if k.Parameters != "" {
			parameters.WriteString("options " + name + " " + k.Parameters + "\n")
		}
	}
	if parameters.Len() > 0 {
		files = append(files, File{Path: modprobeFile, Content: []byte(parameters.String())})
	}
	if load.Len() > 0 {
		files = append(files, File{Path: modulesFile, Content: []byte(load.String())})
		commands = append(commands, "/usr/lib/systemd/systemd-modules-load "+modulesFile)
	}
	if len(m.Sysctls) == 0 {
		return files, commands
	}
	var settings strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m.Sysctls)) {
		settings.WriteString(name + " = " + m.Sysctls[name] + "\n")
	}
	files = append(files, File{Path: sysctlFile, Content: []byte(settings.String())})
	// --strict: a setting that the kernel does not have is an error, and not a line of the journal.
	return files, append(commands, "/usr/lib/systemd/systemd-sysctl --strict "+sysctlFile)
}

// limits is the drop-in of the runtime's limits on a group's machines, where they are not the image's: what runs in containers has those of
// containerd.
func (c *Complete) limits(g Group) []File {
	n := c.Cluster.Machines.Nofile
	if n == usualNofile || !g.Roles.Has(role.Minions) {
		return nil
	}
	return []File{{Path: path.Join(unitDir, containerdUnit+".d", limitsFile), Content: fmt.Appendf(nil, "[Service]\nLimitNOFILE=%d\n", n)}}
}
