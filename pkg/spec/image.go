package spec

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Image is the configuration of each component in an image. It is read-only.
type Image struct {
	rootfs   fs.FS
	programs map[string]imageProgram
	// units are the names of the image's units.
	units []string
}

// imageProgram is the unit of one component and the flags that the image runs it with.
type imageProgram struct {
	unit string
	role role.Role
	// flags are the flags on a machine with a minimal role file.
	flags map[string]baked
	// args is the variable with the last arguments ("KUBE_APISERVER_ARGS"), or "".
	args string
	// command are the words of ExecStart=, before any variable is filled in.
	command []string
	// shell: a shell splits the last arguments at blanks, without regard to quotes.
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
	// from is the file that says so, and why the comment before its line.
	from, why string
}

// ReadImage reads an image's units, and its plain files below rootfs/ of assets.
func ReadImage(units, assets fs.FS) (*Image, error) {
	us, problems := unit.Load(units)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("reading the image's units: %w", err)
	}
	rootfs, err := fs.Sub(assets, "rootfs")
	if err != nil {
		return nil, fmt.Errorf("reading the image's plain files: %w", err)
	}
	img := &Image{rootfs: rootfs, programs: map[string]imageProgram{}}
	for _, u := range us {
		img.units = append(img.units, u.Name)
	}
	var found problem.List
	for _, c := range components {
		p, err := img.program(us, c)
		if err != nil {
			found.Errorf("units/"+c.unit(), "", "%v", err)
			continue
		}
		img.programs[c.name] = p
	}
	found.Sort()
	if err := found.Err(); err != nil {
		return nil, fmt.Errorf("reading the image's units: %w", err)
	}
	return img, nil
}

// addons are the names of the optional manifests.
func (img *Image) addons() []string {
	// A pattern that is well formed: there is no other error.
	files, _ := fs.Glob(img.rootfs, path.Join(strings.TrimPrefix(imageAddons, "/"), optionalAddons, "*.yaml"))
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return names
}

// program reads the component's unit, and the environment files that it names.
func (img *Image) program(us []unit.Unit, c component) (imageProgram, error) {
	if c.unit() == "" {
		return imageProgram{role: c.podRole}, nil
	}
	for _, u := range us {
		if u.Name != c.unit() {
			continue
		}
		r, ok := u.Role()
		if !ok {
			return imageProgram{}, fmt.Errorf("belongs to no single role")
		}
		p := imageProgram{unit: u.Name, role: r, flags: map[string]baked{}}
		vars, err := img.variables(u)
		if err != nil {
			return imageProgram{}, err
		}
		return p, p.read(c, u, vars)
	}
	return imageProgram{}, fmt.Errorf("is not among the units")
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
		var why []string
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if text, ok := strings.CutPrefix(line, "#"); ok {
				why = append(why, strings.TrimSpace(text))
				continue
			}
			if name, value, ok := strings.Cut(line, "="); ok {
				vars[name] = baked{value: value, variable: name, set: value != "", from: file, why: strings.Join(why, " ")}
			}
			why = nil
		}
	}
	return vars, nil
}

var (
	variableWord = regexp.MustCompile(`^\$\{?([A-Z][A-Z0-9_]*)\}?$`)
	flagWord     = regexp.MustCompile(`^--([a-z][A-Za-z0-9._-]*)(?:=(.*))?$`)
)

// read takes the flags out of ExecStart=. A program that a shell starts has its flags in the shell's text.
func (p *imageProgram) read(c component, u unit.Unit, vars map[string]baked) error {
	line := u.Value("Service", "ExecStart").Value
	p.command = strings.Fields(strings.TrimRight(line, "'\" "))
	program := 0
	for i, w := range p.command {
		if path.IsAbs(w) && path.Base(w) == c.executable {
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
	if c.envPrefix != "" {
		for name, b := range vars {
			if flag, ok := strings.CutPrefix(name, c.envPrefix); ok {
				p.flags[strings.ReplaceAll(strings.ToLower(flag), "_", "-")] = b
			}
		}
	}
	return nil
}

// seedFlags are the flags of variables that the image leaves empty, so that it does not say which.
var seedFlags = map[string]string{"CLOUD_PROVIDER": "cloud-provider", "KUBELET_HOSTNAME": "hostname-override"}

// variable notes a flag that a variable carries.
func (p *imageProgram) variable(b baked, name string) {
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
