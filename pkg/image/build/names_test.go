package build

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// Every program that is linked from several knows each of its names, says the lock's version under it,
// and refuses any other. The real programs are used, so they must be in the user's cache: building them
// takes minutes, which is `make image`'s work.
func TestProgramsOfSeveralNames(t *testing.T) {
	needBuilt(t)
	tests := []struct {
		component string
		names     map[string][]string // the arguments that print the version
	}{
		{"kubernetes", map[string][]string{
			"kube-apiserver": {"--version"}, "kube-controller-manager": {"--version"}, "kube-scheduler": {"--version"},
			"kube-proxy": {"--version"}, "kubelet": {"--version"}, "kubectl": {"version", "--client"},
		}},
		{"etcd", map[string][]string{"etcd": {"--version"}, "etcdctl": {"version"}, "etcdutl": {"version"}}},
		{"konnectivity", map[string][]string{"konnectivity-server": {"--version"}, "konnectivity-agent": {"--version"}}},
		{"containerd", map[string][]string{"containerd": {"--version"}, "ctr": {"--version"}}},
		{"cni-plugins", map[string][]string{"bridge": {"--version"}, "host-local": {"--version"}, "loopback": {"--version"}, "portmap": {"--version"}}},
	}
	for _, test := range tests {
		t.Run(test.component, func(t *testing.T) {
			c, root := installed(t, test.component)
			for name, args := range test.names {
				file, ok := c.File(name)
				if !ok {
					t.Fatalf("the lock has no %s", name)
				}
				path := filepath.Join(root, file.Path)
				out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), strings.TrimPrefix(c.Version, "v")) {
					t.Errorf("%s %v does not say %s: %v\n%s", name, args, c.Version, err, out)
				}
				help, err := exec.CommandContext(t.Context(), path, "--help").CombinedOutput()
				// containerd, ctr and etcd's tools name themselves; so do Kubernetes' programs.
				if err != nil || !bytes.Contains(help, []byte(name)) {
					t.Errorf("%s --help does not name it: %v\n%.400s", name, err, help)
				}
			}
			within(t, root, c)
			for _, p := range c.Modules.Programs {
				if p.Path != "" {
					refusesOtherNames(t, filepath.Join(root, p.Path), p)
				}
			}
		})
	}
}

// needBuilt skips a test of the real programs where those are not asked for.
func needBuilt(t *testing.T) {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("needs the built components: set HARDTACK_E2E=1")
	}
}

// installed is a component of the newest lock, and a directory with its programs out of the user's cache.
func installed(t *testing.T, component string) (c lock.Component, root string) {
	t.Helper()
	c, root = lockComponent(t, "kubernetes-1.36.lock.yaml", component), t.TempDir()
	entries, _, err := cachedBuilder(t, c).Build(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	install(t, root, entries)
	return c, root
}

// within calls what the lock says is within the host's programs. Upstream's programs say their versions in their own ways.
func within(t *testing.T, root string, host lock.Component) {
	t.Helper()
	for name, g := range guests(t, root, host) {
		out, err := exec.CommandContext(t.Context(), g.program, "--version").CombinedOutput()
		said, _, _ := strings.Cut(string(out), "\n")
		want := map[string]string{"coredns": "CoreDNS-" + strings.TrimPrefix(g.version, "v"), "crictl": "crictl version " + g.version}[name]
		if err != nil || said != cmp.Or(want, g.version) {
			t.Errorf("%s within %s does not say %s: %v\n%s", name, host.Name, g.version, err, out)
		}
	}
}

// TestFlagsApart: CoreDNS defines its flags for the whole process. Linked with others it alone has them, and none of theirs.
func TestFlagsApart(t *testing.T) {
	needBuilt(t)
	c, root := installed(t, "kubernetes")
	all := guests(t, root, c)
	for _, name := range []string{"kubelet", "kube-proxy"} {
		file, _ := c.File(name)
		all[name] = guest{program: filepath.Join(root, file.Path)}
	}
	has := regexp.MustCompile(`(?m)^\s+--?(conf|dns\.port|pidfile|plugins|quiet)\b`)
	for name, g := range all {
		out, err := exec.CommandContext(t.Context(), g.program, "--help").CombinedOutput()
		if found := has.FindAllString(string(out), -1); err != nil || len(found) != map[string]int{"coredns": 5}[name] {
			t.Errorf("%s --help has %q of CoreDNS' flags, %v", name, found, err)
		}
		if name == "coredns" && strings.Count(string(out), "\n  -") != 7 {
			t.Errorf("CoreDNS has other flags than its own:\n%s", out)
		}
	}
}

// TestMethodsLeftOut: the linker leaves out of the daemons what no code calls, as modules/kubernetes-1.36.txtar says, and keeps it in
// the tools. A dependency that looks methods up by names ends that for a whole program, and nothing else would show it.
func TestMethodsLeftOut(t *testing.T) {
	needBuilt(t)
	c, root := installed(t, "kubernetes")
	// A method of a type that every program has, which none of them calls.
	uncalled := []byte("reflect.Value.FieldByNameFunc")
	for name, kept := range map[string]bool{"kube-apiserver": false, "kubelet": false, "kubectl": true} {
		file, _ := c.File(name)
		code, err := os.ReadFile(filepath.Join(root, file.Path))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(code, uncalled) != kept {
			t.Errorf("%s has %s: %v, want %v; `go build -ldflags=-dumpdep` marks with ReflectMethod who keeps it", name, uncalled, !kept, kept)
		}
	}
}

// guest is a link to the program that serves a file of another component, and that component's version.
type guest struct{ program, version string }

// guests are what the lock says is within the host's programs, by their names.
func guests(t *testing.T, root string, host lock.Component) map[string]guest {
	t.Helper()
	dir, links := t.TempDir(), map[string]guest{}
	for _, c := range everyLock(t)["kubernetes-1.36.lock.yaml"].Components {
		for _, f := range c.Files {
			if !slices.ContainsFunc(host.Modules.Programs, func(p lock.Program) bool { return p.Path != "" && p.Path == f.Within }) {
				continue
			}
			links[f.Name] = guest{filepath.Join(dir, f.Name), c.Version}
			if err := os.Symlink(filepath.Join(root, f.Within), links[f.Name].program); err != nil {
				t.Fatal(err)
			}
		}
	}
	return links
}

// refusesOtherNames runs the program under an unknown name.
func refusesOtherNames(t *testing.T, program string, p lock.Program) {
	t.Helper()
	other := filepath.Join(t.TempDir(), "something-else")
	if err := os.Symlink(program, other); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), other).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("%s under another name: %v, want exit status 2", p.Package, err)
	}
	for _, name := range p.Names {
		if !strings.Contains(string(out), name) {
			t.Errorf("%s under another name does not say that it is also %s: %s", p.Package, name, out)
		}
	}
}

// cachedBuilder is a builder over the user's cache. The test is skipped where the component would have
// to be compiled first.
func cachedBuilder(t *testing.T, c lock.Component) *Builder {
	t.Helper()
	b := &Builder{Assets: images.FS, Cache: newCache(t, ""), Arch: runtime.GOARCH}
	built, err := b.Built(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if !built {
		t.Skipf("%s is not built: run `hardtack lock verify --source modules` first", c.Name)
	}
	return b
}

// The flags that the units give are flags that the programs have: upstream removes some with every
// minor version, and a unit would only say so on a machine that has booted.
func TestUnitsGiveKnownFlags(t *testing.T) {
	needBuilt(t)
	tests := map[string]string{
		"kube-apiserver": "kubernetes", "kube-controller-manager": "kubernetes", "kube-scheduler": "kubernetes",
		"kube-proxy": "kubernetes", "kubelet": "kubernetes", "etcd": "etcd", "flanneld": "kubernetes",
	}
	flag := regexp.MustCompile(`\s--([a-z0-9-]+)`)
	for name, owner := range tests {
		t.Run(name, func(t *testing.T) {
			unit, err := fs.ReadFile(units.FS, name+".service")
			if err != nil {
				t.Fatal(err)
			}
			// The command goes on while its lines end in a backslash.
			command := regexp.MustCompile(`(?m)^ExecStart=(?:.*\\\n)*.*$`).FindString(string(unit))
			if !strings.Contains(command, "/usr/bin/"+name) {
				t.Fatalf("%s.service does not start /usr/bin/%[1]s: %q", name, command)
			}
			c, root := installed(t, owner)
			program := guests(t, root, c)[name].program
			if file, ok := c.File(name); ok {
				program = filepath.Join(root, file.Path)
			}
			if program == "" {
				t.Fatalf("the lock has no %s", name)
			}
			help, err := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
			if err != nil {
				t.Fatalf("--help: %v\n%.400s", err, help)
			}
			given := flag.FindAllStringSubmatch(command, -1)
			if len(given) == 0 && name != "etcd" { // etcd takes its settings from the environment
				t.Errorf("no flag found in %q: this test would say nothing", command)
			}
			for _, match := range given {
				known := regexp.MustCompile(`(?m)(^|\s)--?` + regexp.QuoteMeta(match[1]) + `(\s|$)`)
				if !known.Match(help) {
					t.Errorf("%s.service gives --%s, which %[1]s %s does not have", name, match[1], c.Version)
				}
			}
		})
	}
}
