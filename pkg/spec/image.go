package spec

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/unit"
)

// Image is what an image says about each component by itself. It is read-only.
type Image struct {
	rootfs   fs.FS
	programs map[string]program
	// units are the names of the image's units.
	units []string
}

// program is one component as the image runs it.
type program struct {
	unit string
	role role.Role
	// flags are those that a machine with a bare role file runs it with.
	flags map[string]baked
	// args is the variable whose value comes last ("KUBE_APISERVER_ARGS"), or "".
	args string
	// command are the words of ExecStart=, before any variable is filled in.
	command []string
	// shell says that a shell splits the last arguments, which knows no quotes there.
	shell bool
}

// baked is one flag that the image gives.
type baked struct {
	// value may have ${CLUSTER_NAME} in it.
	value string
	// variable carries the flag; "" for one that is written out in the unit.
	variable string
	// set is false for a variable that is there and empty.
	set bool
	// from is the file that says so.
	from string
}

// componentUnits is which unit runs a component, by the component's name in a document. CoreDNS has none:
// it runs in pods.
var componentUnits = map[string]string{
	"kubeAPIServer":         "kube-apiserver.service",
	"kubeControllerManager": "kube-controller-manager.service",
	"kubeScheduler":         "kube-scheduler.service",
	"kubeProxy":             "kube-proxy.service",
	"kubelet":               "kubelet.service",
	"etcd":                  "etcd.service",
	"containerd":            "containerd.service",
	"flannel":               "flanneld.service",
}

// etcdPrefix begins the variables that etcd itself reads.
const etcdPrefix = "ETCD_"

// ReadImage reads what an image has: its units, and its plain files below rootfs/ of assets.
func ReadImage(units, assets fs.FS) (*Image, error) {
	us, problems := unit.Load(units)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("reading the image's units: %w", err)
	}
	rootfs, err := fs.Sub(assets, "rootfs")
	if err != nil {
		return nil, fmt.Errorf("reading the image's plain files: %w", err)
	}
	img := &Image{rootfs: rootfs, programs: map[string]program{}}
	for _, u := range us {
		img.units = append(img.units, u.Name)
	}
	var found problem.List
	for field, name := range componentUnits {
		p, err := img.program(us, name)
		if err != nil {
			found.Errorf("units/"+name, "", "%v", err)
			continue
		}
		img.programs[field] = p
	}
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("reading the image's units: %w", err)
	}
	// CoreDNS runs in pods, which the masters make.
	img.programs["coreDNS"] = program{role: role.Masters}
	return img, nil
}

// program reads one unit, and the files of variables that it names.
func (img *Image) program(us []unit.Unit, name string) (program, error) {
	for _, u := range us {
		if u.Name != name {
			continue
		}
		r, ok := u.Role()
		if !ok {
			return program{}, fmt.Errorf("belongs to no single role")
		}
		p := program{unit: name, role: r, flags: map[string]baked{}}
		vars, err := img.variables(u)
		if err != nil {
			return program{}, err
		}
		return p, p.read(u, vars)
	}
	return program{}, fmt.Errorf("is not among the units")
}

// variables reads the unit's files of variables but for the role file; the last one that sets a name wins.
func (img *Image) variables(u unit.Unit) (map[string]baked, error) {
	vars := map[string]baked{}
	for _, o := range u.Values("Service", "EnvironmentFile") {
		file := strings.TrimPrefix(o.Value, "-")
		if _, isRole, _ := role.OfFile(file); isRole || strings.HasPrefix(file, "/run/") {
			continue // made at boot
		}
		data, err := fs.ReadFile(img.rootfs, strings.TrimPrefix(file, "/"))
		if err != nil {
			return nil, fmt.Errorf("reading EnvironmentFile=%s: %w", o.Value, err)
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			name, value, ok := strings.Cut(line, "=")
			if line == "" || strings.HasPrefix(line, "#") || !ok {
				continue
			}
			vars[name] = baked{value: value, variable: name, set: value != "", from: file}
		}
	}
	return vars, nil
}

var (
	variableWord = regexp.MustCompile(`^\$\{?([A-Z][A-Z0-9_]*)\}?$`)
	flagWord     = regexp.MustCompile(`^--([a-z][a-z0-9-]*)(?:=(.*))?$`)
)

// read takes the flags out of ExecStart=. A program that a shell starts has its flags in the shell's text.
func (p *program) read(u unit.Unit, vars map[string]baked) error {
	line := u.Value("Service", "ExecStart").Value
	p.command = strings.Fields(strings.TrimRight(line, "'\" "))
	program := 0
	for i, w := range p.command {
		if path.IsAbs(w) && path.Base(w) == strings.TrimSuffix(u.Name, ".service") {
			program = i
		}
	}
	p.shell = program > 0
	for _, w := range p.command[program+1:] {
		flag, variable := flagWord.FindStringSubmatch(w), variableWord.FindStringSubmatch(w)
		switch {
		case flag != nil:
			b := baked{value: flag[2], set: true, from: "units/" + u.Name}
			if !strings.Contains(w, "=") {
				b.value = "true"
			}
			p.flags[flag[1]] = b
		case variable != nil && strings.HasSuffix(variable[1], "_ARGS"):
			p.args = variable[1]
		case variable != nil:
			p.variable(vars[variable[1]], variable[1])
		default:
			return fmt.Errorf("ExecStart= has %q, which is neither a flag nor a variable", w)
		}
	}
	if u.Name == componentUnits["etcd"] {
		for name, b := range vars {
			if flag, ok := strings.CutPrefix(name, etcdPrefix); ok {
				p.flags[strings.ReplaceAll(strings.ToLower(flag), "_", "-")] = b
			}
		}
	}
	return nil
}

// seedFlags are the flags of variables that the image leaves empty, so that it does not say which.
var seedFlags = map[string]string{"CLOUD_PROVIDER": "cloud-provider", "KUBELET_HOSTNAME": "hostname-override"}

// variable notes a flag that a variable carries.
func (p *program) variable(b baked, name string) {
	b.variable = name
	if flag := flagWord.FindStringSubmatch(b.value); flag != nil {
		b.value = flag[2]
		p.flags[flag[1]] = b
	} else if flag, ok := seedFlags[name]; ok {
		p.flags[flag] = b
	}
}

// file reads a plain file of the image.
func (img *Image) file(name string) ([]byte, error) {
	return fs.ReadFile(img.rootfs, strings.TrimPrefix(name, "/"))
}
