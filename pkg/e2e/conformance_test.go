package e2e

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/e2e/conformance"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// conformanceCluster is the default cluster with metrics-server, whose nodes pull what names any registry from the lab's.
const conformanceCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions], size: 2, cpus: 2, memory: 3072}
etcd: {storage: machine, backup: {to: none}}
addons: [metrics-server]
fileAssets:
- path: /etc/containerd/certs.d/_default/hosts.toml
  roles: [minions]
  content: |
    %s
`

// shortList has every fifth conformance spec in upstream's order, without the slow ones, and the three that need an API server
// which reaches pods.
//
//go:embed conformance/short.txt
var shortList string

// TestConformance has Kubernetes' own end-to-end tests judge a cluster of the default shape. CONFORMANCE chooses the specs: short
// (the default), all, a part of their names, or @ and a file with a name in each line. A run goes on where one of the same list and image was stopped or had failures:
// what has passed is not run again, unless all of it has.
func TestConformance(t *testing.T) {
	needTime(t)
	suite, kubectl := conformanceSuite(t)
	r := newLab(t, "conformance", fmt.Sprintf(conformanceCluster, strings.ReplaceAll(strings.TrimSpace(lab.RegistryMirror()), "\n", "\n    ")))
	if _, err := r.Load(t.Context(), suite.Images); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the cluster is ready", ready)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := r.Kubeconfig(t.Context())
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := chosen(t, suite)
	book := openBook(t, names)
	log, err := os.Create(filepath.Join(root, "build", "conformance.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, name := range names {
		if book.has(name) {
			t.Logf("%d of %d has passed on this image before: %s", i+1, len(names), name)
			continue
		}
		result, err := suite.Run(interrupted, conformance.Cluster{Kubeconfig: kubeconfig, Kubectl: kubectl}, name, log)
		if interrupted.Err() != nil {
			t.Fatalf("%v: the next run goes on here", err)
		}
		if err != nil {
			t.Error(err)
			continue
		}
		book.add(t, result)
		t.Logf("%d of %d %s after %.0f s: %s", i+1, len(names), result.Outcome, result.Seconds, result.Name)
		if result.Outcome != conformance.Passed {
			t.Errorf("%s: %s: %s", result.Outcome, result.Name, result.Failure)
		}
	}
}

// conformanceSuite builds the suite, and returns it with a kubectl of its version.
func conformanceSuite(t *testing.T) (conformance.Suite, string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	l, dir := programs.DefaultLock(t), t.TempDir()
	programs.Install(t, dir, l, "kubernetes", "etcd")
	suite, err := conformance.Build(t.Context(), conformance.Options{
		Cache: filepath.Join(cache, "hardtack", "conformance"),
		Etcd:  filepath.Join(dir, programs.Bin, "etcd"),
		Log:   func(text string) { t.Log(text) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return suite, filepath.Join(dir, programs.Bin, "kubectl")
}

// chosen are the names of the specs that CONFORMANCE names.
func chosen(t *testing.T, s conformance.Suite) []string {
	t.Helper()
	all, err := s.Names(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	switch list := os.Getenv("CONFORMANCE"); list {
	case "all":
		return all
	case "", "short":
		return listed(t, all, shortList)
	default:
		if path, ok := strings.CutPrefix(list, "@"); ok {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("CONFORMANCE=%s: %v", list, err)
			}
			return listed(t, all, string(text))
		}
		named := slices.DeleteFunc(all, func(n string) bool { return !strings.Contains(n, list) })
		if len(named) == 0 {
			t.Fatalf("CONFORMANCE=%s: it is short, all, @FILE, or a part of the names of conformance specs", list)
		}
		return named
	}
}

// listed are the names in the lines of a text.
func listed(t *testing.T, all []string, text string) []string {
	t.Helper()
	names := strings.Split(strings.TrimSpace(text), "\n")
	for _, n := range names {
		if !slices.Contains(all, n) {
			t.Errorf("%s is no conformance spec of %s", n, conformance.Version)
		}
	}
	return names
}

// book keeps the results of specs in build/conformance.json, for one image.
type book struct {
	// Image is the digest of the image's image.json.
	Image   string               `json:"image"`
	Results []conformance.Result `json:"results"`
	path    string
}

// openBook reads the results of these specs that passed on the same image; none if all of them have.
func openBook(t *testing.T, names []string) *book {
	t.Helper()
	info, err := os.ReadFile(filepath.Join(filepath.Dir(image(t)), "image.json"))
	if err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(info))
	b := &book{path: filepath.Join(root, "build", "conformance.json")}
	if data, err := os.ReadFile(b.path); err == nil {
		if err := json.Unmarshal(data, b); err != nil {
			t.Fatalf("reading %s: %v (remove it)", b.path, err)
		}
	}
	if b.Image != digest {
		b.Results = nil
	}
	b.Image = digest
	b.Results = slices.DeleteFunc(b.Results, func(r conformance.Result) bool { return r.Outcome != conformance.Passed })
	if !slices.ContainsFunc(names, func(n string) bool { return !b.has(n) }) {
		b.Results = nil
	}
	return b
}

func (b *book) has(name string) bool {
	return slices.ContainsFunc(b.Results, func(r conformance.Result) bool { return r.Name == name })
}

// add keeps one more result.
func (b *book) add(t *testing.T, result conformance.Result) {
	t.Helper()
	b.Results = append(b.Results, result)
	data, err := json.MarshalIndent(b, "", "  ")
	if err == nil {
		_, err = file.Replace(b.path, append(data, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
