package addons_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

func config() machine.Config {
	return machine.Config{Cluster: "demo", Network: machine.Network{
		ServiceCIDR: "10.32.0.0/16", PodCIDR: "10.200.0.0/16", DNSAddress: "10.32.0.53", DNSDomain: "demo.local"}}
}

// baked are the objects of the image.
func baked(t *testing.T) []addons.Object {
	t.Helper()
	text, err := fs.ReadFile(images.FS, "rootfs/etc/containerd/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	image, err := addons.PauseImage(text)
	if err != nil {
		t.Fatal(err)
	}
	values, err := addons.Values(config(), image)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := fs.Sub(images.FS, "rootfs"+addons.Dir)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := addons.Load(values, dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// at walks into an object by map keys.
func at(t *testing.T, o addons.Object, path ...string) any {
	t.Helper()
	var value any = o.Value
	for _, key := range path {
		m, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("%s has no %v", o, path)
		}
		value = m[key]
	}
	return value
}

func find(t *testing.T, objects []addons.Object, name string) addons.Object {
	t.Helper()
	i := slices.IndexFunc(objects, func(o addons.Object) bool { return o.String() == name })
	if i < 0 {
		t.Fatalf("the image has no %s", name)
	}
	return objects[i]
}

func TestBakedManifests(t *testing.T) {
	objects := baked(t)
	if got := at(t, find(t, objects, "Service/kube-dns"), "spec", "clusterIP"); got != "10.32.0.53" {
		t.Errorf("kube-dns is at %v", got)
	}
	if got, _ := at(t, find(t, objects, "ConfigMap/coredns"), "data", "Corefile").(string); !strings.Contains(got, "kubernetes demo.local ") {
		t.Errorf("the Corefile serves another domain:\n%s", got)
	}
	pod := at(t, find(t, objects, "Deployment/coredns"), "spec", "template", "spec", "containers").([]any)
	for _, one := range pod {
		container := one.(map[string]any)
		if container["image"] != "registry.k8s.io/pause:3.10.1" || container["imagePullPolicy"] != "Never" {
			t.Errorf("%v is of %v, pulled %v: nothing may be pulled", container["name"], container["image"], container["imagePullPolicy"])
		}
	}
	seen := map[string]bool{}
	for _, o := range objects {
		if o.Value["apiVersion"] == nil || seen[o.String()] {
			t.Errorf("%s has no version, or is there twice", o)
		}
		seen[o.String()] = true
	}
}

// TestGroups holds the groups that have rights against those that certificates and tokens have.
func TestGroups(t *testing.T) {
	objects := baked(t)
	// Nobody may have a node's certificate for asking: the binding is applied empty, since an earlier image had subjects.
	if subjects := at(t, find(t, objects, "ClusterRoleBinding/hardtack:node-client-certificates"), "subjects").([]any); len(subjects) > 0 {
		t.Errorf("certificates are approved for %v", subjects)
	}
	for binding, group := range map[string]string{
		"hardtack:node-bootstrapper":               pki.GroupBootstrappers,
		"hardtack:node-client-certificate-renewal": "system:nodes",
		"hardtack:node-proxier":                    "system:nodes",
		"hardtack:flannel":                         "system:nodes",
		"hardtack:kubelet-clients":                 pki.GroupKubeletClients,
	} {
		subjects := at(t, find(t, objects, "ClusterRoleBinding/"+binding), "subjects").([]any)
		if len(subjects) != 1 || subjects[0].(map[string]any)["name"] != group {
			t.Errorf("%s is for %v, want %s", binding, subjects, group)
		}
	}
}

func TestLoad(t *testing.T) {
	values := map[string]string{"NAME": "x"}
	one := fstest.MapFS{
		"20-b.yaml": {Data: []byte("# nothing\n---\nkind: B\nmetadata: {name: b}\n---\n")},
		"10-a.yaml": {Data: []byte("kind: A\nmetadata: {name: ${NAME}}\n---\nkind: A\nmetadata: {name: second}\n")},
		"notes.txt": {Data: []byte("not read")},
	}
	more := fstest.MapFS{"00-c.yaml": {Data: []byte("kind: C\nmetadata: {name: c}\n")}}
	objects, err := addons.Load(values, one, more, fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.String())
	}
	if want := []string{"A/x", "A/second", "B/b", "C/c"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	_, err := addons.Load(nil, fstest.MapFS{
		"1.yaml": {Data: []byte("kind: A\nmetadata: {name: ${WHO}}\nspec: ${WHAT}\n")},
		"2.yaml": {Data: []byte("kind: A\n")},
		"3.yaml": {Data: []byte("kind: [\n")},
	})
	if err == nil {
		t.Fatal("nothing was refused")
	}
	for _, want := range []string{"1.yaml: ${WHO}", "1.yaml: ${WHAT}", "2.yaml: object 1 has no kind", "3.yaml: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

// api fails the configured number of times for each object, and records the applied ones.
type api struct {
	failures int
	applied  []string
}

func (a *api) Apply(_ context.Context, object map[string]any) error {
	name := addons.Object{Value: object}.String()
	if a.failures > 0 {
		a.failures--
		return errors.New("connection refused")
	}
	a.applied = append(a.applied, name)
	return nil
}

func TestApplyTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := baked(t)
		server := &api{failures: 5}
		if err := addons.Apply(t.Context(), server, objects, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, o := range objects {
			want = append(want, o.String())
		}
		if !slices.Equal(server.applied, want) {
			t.Errorf("applied %v, want %v", server.applied, want)
		}
	})
}

func TestApplyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := addons.Apply(ctx, &api{failures: 1 << 30}, baked(t), slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("ends with %v, want the cause and the last failure", err)
	}
}

func TestPauseImage(t *testing.T) {
	if _, err := addons.PauseImage([]byte("version = 3\n")); err == nil {
		t.Error("a configuration without a sandbox image was taken")
	}
}
