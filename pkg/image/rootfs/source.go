package rootfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// Bytes returns the entry of a regular file with the content.
func Bytes(component, file string, mode fs.FileMode, content []byte) Entry {
	sum := sha256.Sum256(content)
	return Entry{
		Path: file, Mode: mode.Perm(), Size: int64(len(content)), Digest: hex.EncodeToString(sum[:]), Component: component,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
	}
}

// Local returns the entry of a regular file with the content of a local file.
func Local(component, file string, mode fs.FileMode, source string) (Entry, error) {
	return Opened(component, file, mode, func() (io.ReadCloser, error) { return os.Open(source) })
}

// Opened returns the entry of a regular file with the content that open returns. It is read here for its size and
// digest, and again when the tree is written; a change in between is an error then.
func Opened(component, file string, mode fs.FileMode, open func() (io.ReadCloser, error)) (Entry, error) {
	content, err := open()
	if err != nil {
		return Entry{}, err
	}
	defer content.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, content)
	if err != nil {
		return Entry{}, fmt.Errorf("reading the source of %s: %w", file, err)
	}
	return Entry{Path: file, Mode: mode.Perm(), Size: size, Digest: hex.EncodeToString(hash.Sum(nil)), Component: component, Open: open}, nil
}

// Unit returns the entries of a unit: its file, and the links that enable it.
func Unit(component, name string, content []byte) ([]Entry, error) {
	entries := []Entry{Bytes(component, path.Join(UnitDir, name), 0o644, content)}
	links, err := enable(component, name, content)
	return append(entries, links...), err
}

func unitEntries(in Inputs) ([]Entry, error) {
	var entries []Entry
	err := walk(in.Units, func(name string, content []byte) error {
		more, err := Unit(FromUnits, name, content)
		entries = append(entries, more...)
		return err
	})
	return entries, err
}

// enable returns the links that `systemctl enable` would make for the unit, from its [Install].
func enable(component, name string, content []byte) ([]Entry, error) {
	if strings.Contains(name, "/") { // a drop-in, which systemctl does not enable
		return nil, nil
	}
	options, problems := unit.Parse(name, content)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("parsing the unit: %w", err)
	}
	as := instanceName(name, options)
	var links []Entry
	link := func(at string) {
		links = append(links, Entry{Path: path.Join(enableDir, at), Mode: fs.ModeSymlink | 0o777,
			Link: path.Join(UnitDir, name), Component: component})
	}
	for _, o := range options {
		if o.Section != "Install" {
			continue
		}
		for value := range strings.FieldsSeq(o.Value) {
			switch o.Name {
			case "WantedBy":
				link(path.Join(value+".wants", as))
			case "RequiredBy":
				link(path.Join(value+".requires", as))
			case "Alias":
				link(value)
			}
		}
	}
	return links, nil
}

// instanceName is the name that a link gives the unit: a template is enabled as its default instance.
func instanceName(name string, options []unit.Option) string {
	prefix, suffix, template := strings.Cut(name, "@.")
	for _, o := range options {
		if template && o.Section == "Install" && o.Name == "DefaultInstance" {
			return prefix + "@" + o.Value + "." + suffix
		}
	}
	return name
}

func plainEntries(in Inputs) ([]Entry, error) {
	var entries []Entry
	err := walk(in.Rootfs, func(name string, content []byte) error {
		entries = append(entries, Bytes(FromRootfs, "/"+name, FileMode(content), content))
		return nil
	})
	return entries, err
}

// FileMode is the mode that the image gives a file of images/rootfs: 0755 where it begins with "#!", otherwise 0644. Embedded
// files have no modes of their own.
func FileMode(content []byte) fs.FileMode {
	if bytes.HasPrefix(content, []byte("#!")) {
		return 0o755
	}
	return 0o644
}

// walk calls visit for each regular file of the assets that is not a place holder.
func walk(assets fs.FS, visit func(name string, content []byte) error) error {
	if assets == nil {
		return nil
	}
	return fs.WalkDir(assets, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if base := path.Base(name); strings.HasPrefix(base, ".git") || strings.HasPrefix(base, ".keep") {
			return nil
		}
		content, err := fs.ReadFile(assets, name)
		if err != nil {
			return err
		}
		return visit(name, content)
	})
}

// kernelEntries writes the arguments twice: for systems that make a unified kernel image or use
// kernel-install, and for those that boot by GRUB, as Debian's cloud images do.
func kernelEntries(in Inputs) ([]Entry, error) {
	if len(in.KernelArguments) == 0 {
		return nil, nil
	}
	line := strings.Join(in.KernelArguments, " ")
	if strings.ContainsAny(line, "\n\"'`$\\") {
		return nil, fmt.Errorf("the kernel arguments %q hold a quote, a dollar, a backslash or a line break", line)
	}
	grub := "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX " + line + "\"\n"
	return []Entry{
		Bytes(FromExtra, CmdlinePath, 0o644, []byte(line+"\n")),
		Bytes(FromExtra, GrubPath, 0o644, []byte(grub)),
	}, nil
}

func sysctlEntries(in Inputs) ([]Entry, error) {
	if len(in.Sysctls) == 0 {
		return nil, nil
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(in.Sysctls)) {
		value := in.Sysctls[name]
		if name == "" || strings.ContainsAny(name, " =#;\n") || strings.Contains(value, "\n") {
			return nil, fmt.Errorf("the sysctl %q = %q does not fit on a line of sysctl.d", name, value)
		}
		fmt.Fprintf(&b, "%s = %s\n", name, value)
	}
	return []Entry{Bytes(FromExtra, sysctlPath, 0o644, []byte(b.String()))}, nil
}
