package spec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/tools/txtar"
	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// What is committed about upstream's flags and documents is what the real programs say: for each lock
// whose programs are built. The default lock's always are where HARDTACK_E2E is set.
func TestUpstream(t *testing.T) {
	for _, version := range spec.Versions() {
		t.Run(version, func(t *testing.T) {
			p := realPrograms(t, version)
			golden.Assert(t, string(p.facts(t)), filepath.Join("..", "upstream", version+".json"))
		})
	}
}

// What is committed about upstream is of the versions that the locks have: a new version in a lock wants TestUpstream -update.
func TestUpstreamVersions(t *testing.T) {
	for _, version := range spec.Versions() {
		t.Run(version, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("upstream", version+".json"))
			assert.NilError(t, err)
			var committed struct{ Versions map[string]string }
			assert.NilError(t, json.Unmarshal(data, &committed))
			assert.DeepEqual(t, committed.Versions, versions(programs.Lock(t, "kubernetes-"+version)))
		})
	}
}

// versions are a lock's, by component.
func versions(l *lock.Lock) map[string]string {
	m := map[string]string{}
	for _, c := range l.Components {
		m[c.Name] = c.Version
	}
	return m
}

// unpacked are the real programs of one lock below root.
type unpacked struct {
	root string
	lock *lock.Lock
	// said is what each program has printed for --help.
	said map[string]string
}

// realPrograms unpacks the programs of a minor version.
func realPrograms(t *testing.T, version string) unpacked {
	t.Helper()
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("needs the built components: set HARDTACK_E2E=1")
	}
	p := unpacked{root: t.TempDir(), lock: programs.Lock(t, "kubernetes-"+version), said: map[string]string{}}
	if version != spec.DefaultVersion {
		programs.NeedBuilt(t, p.lock, spec.Releases()...)
	}
	programs.Install(t, p.root, p.lock, spec.Releases()...)
	return p
}

// path is where a program is.
func (p unpacked) path(name string) string { return filepath.Join(p.root, programs.Bin, name) }

// help is what a program prints for --help.
func (p unpacked) help(t *testing.T, name string) string {
	t.Helper()
	if said, ok := p.said[name]; ok {
		return said
	}
	out, err := exec.CommandContext(t.Context(), p.path(name), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%.400s", name, err, out)
	}
	p.said[name] = string(out)
	return string(out)
}

// helpParsers reads the flags of each component that lists them, from the text of its program's --help.
var helpParsers = map[string]func(help string) map[string]spec.UpstreamFlag{
	"kubeAPIServer":         parseCobra,
	"kubeControllerManager": parseCobra,
	"kubeScheduler":         parseCobra,
	"kubeProxy":             parseCobra,
	"kubelet":               parseCobra,
	"etcd":                  parseEtcd,
	"flannel":               parseGo,
	"konnectivityServer":    parseGo,
	"konnectivityAgent":     parseGo,
}

// facts is the content of the file about one minor version.
func (p unpacked) facts(t *testing.T) []byte {
	t.Helper()
	flags, gates := map[string]map[string]spec.UpstreamFlag{}, map[string][]string{}
	for field, parse := range helpParsers {
		help := p.help(t, spec.Program(field))
		flags[field] = parse(help)
		if len(flags[field]) < 10 {
			t.Fatalf("%s has only the flags %v", field, flags[field])
		}
		if found := featureGates(help); len(found) > 0 {
			gates[field] = found
		}
	}
	documents := p.documents(t)
	out, err := exec.CommandContext(t.Context(), p.path("containerd"), "config", "default").Output()
	if err != nil {
		t.Fatalf("containerd config default: %v", err)
	}
	defaults := map[string]any{}
	if err := toml.Unmarshal(out, &defaults); err != nil {
		t.Fatal(err)
	}
	documents["containerd"] = map[string]any{"defaults": defaults}
	return writeFacts(t, versions(p.lock), flags, documents, gates)
}

// writeFacts writes a flag or a field a line, so that a new version reads well as a diff.
func writeFacts(t *testing.T, versions map[string]string, flags map[string]map[string]spec.UpstreamFlag, documents map[string]any, gates map[string][]string) []byte {
	t.Helper()
	line := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n\"versions\": %s,\n\"flags\": {\n", line(versions))
	for i, field := range slices.Sorted(maps.Keys(flags)) {
		comma(&b, i)
		fmt.Fprintf(&b, "%s: {\n", line(field))
		for j, name := range slices.Sorted(maps.Keys(flags[field])) {
			comma(&b, j)
			fmt.Fprintf(&b, "%s: %s", line(name), line(flags[field][name]))
		}
		b.WriteString("\n}")
	}
	b.WriteString("\n},\n\"documents\": ")
	data, err := json.MarshalIndent(documents, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b.Write(data)
	data, err = json.MarshalIndent(gates, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, ",\n\"featureGates\": %s\n}\n", data)
	return b.Bytes()
}

func comma(b *bytes.Buffer, i int) {
	if i > 0 {
		b.WriteString(",\n")
	}
}

// documents asks upstream's own code for the fields and defaults of Kubernetes's documents: a small
// program is built against the modules that the lock's programs are built from.
func (p unpacked) documents(t *testing.T) map[string]any {
	t.Helper()
	var source string
	for _, c := range p.lock.Components {
		if c.Name == "kubernetes" {
			source = c.Modules.Source
		}
	}
	data, err := fs.ReadFile(images.FS, source)
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile("testdata/documents/main.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := append(txtar.Parse(data).Files, txtar.File{Name: "documents/main.go", Data: main})
	for _, f := range files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./documents")
	cmd.Dir = dir
	// As the lock's programs are built, so that what the compiler made for them is used again.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+runtime.GOARCH, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly -trimpath -buildvcs=false", "GOTOOLCHAIN=local", "GOWORK=off", "GOENV=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("asking for the documents' fields: %v\n%s", err, &stderr)
	}
	documents := map[string]any{}
	if err := json.Unmarshal(out, &documents); err != nil {
		t.Fatal(err)
	}
	return documents
}
