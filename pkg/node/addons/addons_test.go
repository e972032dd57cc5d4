package addons_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

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
	certificates, err := addons.Certificates(minted(t))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(values, certificates)
	objects, err := addons.Load(values, []string{pki.MetricsServer}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// minted are the files that a master has for metrics-server.
func minted(t *testing.T) fstest.MapFS {
	t.Helper()
	var a pki.MastersAuthorities
	for name, to := range map[string]*pki.Authority{"kubernetes": &a.Kubernetes, "kubelet-serving": &a.KubeletServing} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if *to, err = pki.NewAuthority(name, key, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	files, err := pki.MetricsServerBundle(a).Mint(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	out := fstest.MapFS{}
	for _, f := range files {
		out[f.Name] = &fstest.MapFile{Data: f.Content}
	}
	return out
}

// rights is an API server as the user of the add-ons sees it, and as a superuser does.
type rights struct {
	may     bool
	fail    []error
	asked   int
	granted []string
}

func (r *rights) MayAll(context.Context) (bool, error) {
	r.asked++
	if len(r.fail) > 0 {
		err := r.fail[0]
		r.fail = r.fail[1:]
		return false, err
	}
	return r.may, nil
}

func (r *rights) Apply(_ context.Context, object map[string]any) error {
	r.granted = append(r.granted, addons.Object{Value: object}.String())
	r.may = true
	return nil
}

func (*rights) Delete(context.Context, map[string]any) error {
	return errors.New("a superuser deletes nothing")
}

// TestGrant: a superuser is asked for where the add-ons' user has no rights, and for one object; the API server that has just
// started, and a store that is late, are asked again.
func TestGrant(t *testing.T) {
	for name, tt := range map[string]struct {
		rights
		late int // failures of the store
		want []string
	}{
		"a new cluster":        {want: []string{"ClusterRoleBinding/hardtack:addons"}},
		"the API server late":  {rights: rights{fail: []error{errors.New("starting"), errors.New("starting")}}, want: []string{"ClusterRoleBinding/hardtack:addons"}},
		"the store late":       {late: 2, want: []string{"ClusterRoleBinding/hardtack:addons"}},
		"the second master":    {rights: rights{may: true}},
		"... its API late too": {rights: rights{may: true, fail: []error{errors.New("starting")}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, asked := tt.rights, 0
				err := addons.Grant(t.Context(), &r, func(context.Context) (addons.Cluster, error) {
					if asked++; asked <= tt.late {
						return nil, errors.New("the store does not answer")
					}
					return &r, nil
				}, baked(t), slog.New(slog.DiscardHandler))
				if err != nil || !slices.Equal(r.granted, tt.want) {
					t.Errorf("granted %q, %v, want %q", r.granted, err, tt.want)
				}
				if want := tt.late + len(tt.want); asked != want {
					t.Errorf("a superuser was asked for %d times, want %d", asked, want)
				}
			})
		})
	}
}

// TestMetricsServer: the API server knows the add-on by its certificate, for the name by which it asks.
func TestMetricsServer(t *testing.T) {
	objects := baked(t)
	decode := func(o addons.Object, path ...string) []byte {
		data, err := base64.StdEncoding.DecodeString(at(t, o, path...).(string))
		if err != nil {
			t.Fatalf("%s, %v: %v", o, path, err)
		}
		return data
	}
	secret, service := find(t, objects, "Secret/metrics-server"), find(t, objects, "APIService/v1beta1.metrics.k8s.io")
	pair, err := tls.X509KeyPair(decode(secret, "data", "tls.crt"), decode(secret, "data", "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decode(service, "spec", "caBundle"))
	of := at(t, service, "spec", "service").(map[string]any)
	name := of["name"].(string) + "." + of["namespace"].(string) + ".svc"
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name}); err != nil {
		t.Error(err)
	}
	if _, err := addons.Certificates(fstest.MapFS{}); err == nil || !strings.Contains(err.Error(), "metrics-server.key") {
		t.Errorf("without certificates: %v", err)
	}
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
	// A machine that leaves takes one of its pods at a time, wherever both are, and each answers until the nodes know that it goes.
	dns, budget := find(t, objects, "Deployment/coredns"), find(t, objects, "PodDisruptionBudget/kube-dns")
	if at(t, budget, "spec", "maxUnavailable") != 1 || !reflect.DeepEqual(at(t, budget, "spec", "selector"), at(t, dns, "spec", "selector")) {
		t.Errorf("the disruption budget of CoreDNS: %v", budget.Value)
	}
	if got, _ := at(t, find(t, objects, "ConfigMap/coredns"), "data", "Corefile").(string); !strings.Contains(got, "lameduck ") {
		t.Errorf("CoreDNS ends before the nodes know:\n%s", got)
	}
	pod := at(t, dns, "spec", "template", "spec", "containers").([]any)
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
	objects, err := addons.Load(values, nil, one, more, fstest.MapFS{})
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

// TestOptional: what is not chosen is not applied, and what is may be replaced. What it would be is known without its variables.
func TestOptional(t *testing.T) {
	image := fstest.MapFS{
		"10-a.yaml":                    {Data: []byte("kind: A\nmetadata: {name: a}\n")},
		addons.Optional + "/ship.yaml": {Data: []byte("kind: B\nmetadata: {name: one}\nkey: ${KEY}\n---\nkind: B\nmetadata: {name: two}\n")},
		addons.Optional + "/raft.yaml": {Data: []byte("kind: C\nmetadata: {name: raft}\n")},
	}
	names := func(objects []addons.Object, err error) (out []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, o.String())
		}
		return out
	}
	for _, c := range []struct {
		got, want []string
	}{
		{names(addons.Load(map[string]string{}, nil, image)), []string{"A/a"}},
		{names(addons.Load(map[string]string{"KEY": "x"}, []string{"ship"}, image)), []string{"A/a", "B/one", "B/two"}},
		{names(addons.Load(map[string]string{}, []string{"ship"}, image, fstest.MapFS{"ship.yaml": {Data: []byte("kind: B\nmetadata: {name: own}\n")}})), []string{"A/a", "B/own"}},
		{names(addons.Off(image, []string{"raft"})), []string{"B/two", "B/one"}},
		{names(addons.Off(image, []string{"raft", "ship"})), nil},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
	if _, err := addons.Load(map[string]string{}, []string{"boat"}, image); err == nil || !strings.Contains(err.Error(), "optional/boat.yaml") {
		t.Errorf("an add-on that the image has not: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	_, err := addons.Load(map[string]string{}, nil, fstest.MapFS{
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

func (a *api) Delete(ctx context.Context, object map[string]any) error { return a.Apply(ctx, object) }

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

// hooked refuses an object until one behind it is there, as a webhook does whose pods no node runs yet.
type hooked map[string]bool

func (h hooked) Apply(_ context.Context, o map[string]any) error {
	name := addons.Object{Value: o}.String()
	if name == "Issuer/a" && !h["Deployment/b"] {
		return errors.New("failed calling webhook: no endpoints available")
	}
	h[name] = true
	return nil
}

func (hooked) Delete(context.Context, map[string]any) error { return nil }

// TestApplyHeldUp: an object that is refused does not keep those behind it away.
func TestApplyHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		object := func(kind, name string) addons.Object {
			return addons.Object{From: "x.yaml", Value: map[string]any{"kind": kind, "metadata": map[string]any{"name": name}}}
		}
		h := hooked{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := addons.Apply(ctx, h, []addons.Object{object("Issuer", "a"), object("Deployment", "b")}, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("after an hour: %v; applied %v", err, h)
		}
	})
}
