package fetch

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

var hexA, hexB = strings.Repeat("a", 64), strings.Repeat("b", 64)

// etcdAt is a component whose releases are on GitHub.
func etcdAt(version string) lock.Component {
	base := "etcd-" + version + "-linux-amd64"
	return lock.Component{
		Name: "etcd", Version: version, Files: []lock.File{{Name: "etcd"}},
		Release: map[string][]lock.Download{"amd64": {{
			URL:    "https://github.com/etcd-io/etcd/releases/download/" + version + "/" + base + ".tar.gz",
			Digest: "sha256:" + hexA, Size: 5, Published: "https://old.example", Members: map[string]string{"etcd": base + "/etcd"},
		}}},
		Modules: &lock.Modules{Module: "go.etcd.io/etcd/server/v3", Source: "modules/etcd.txtar"},
	}
}

func kubeletAt(version string) lock.Component {
	address := "https://dl.k8s.io/release/" + version + "/bin/linux/amd64/kubelet"
	return lock.Component{
		Name: "kubernetes", Version: version, Files: []lock.File{{Name: "kubelet"}},
		Release: map[string][]lock.Download{"amd64": {{
			URL: address, Digest: "sha256:" + hexA, Published: "https://old.example", As: "kubelet",
			Signature: &lock.Signature{URL: address + ".sig", Certificate: address + ".cert"},
		}}},
	}
}

// releases makes the mirror answer the API with these tags, each with one asset per name.
func (u *upstream) releases(t *testing.T, repository string, releases ...githubRelease) {
	t.Helper()
	data, err := json.Marshal(releases)
	if err != nil {
		t.Fatal(err)
	}
	u.put("https://api.github.com/repos/"+repository+"/releases", data)
}

func TestUpdates(t *testing.T) {
	u := newUpstream(t)
	asset := func(version, digest string) githubAsset {
		return githubAsset{Name: "etcd-" + version + "-linux-amd64.tar.gz", Size: 7, Digest: digest}
	}
	u.releases(t, "etcd-io/etcd",
		githubRelease{Tag: "v3.7.1"}, githubRelease{Tag: "v3.6.9"}, githubRelease{Tag: "v3.6.21", Draft: true},
		githubRelease{Tag: "v3.6.20-rc.1", Prerelease: true}, githubRelease{Tag: "not-a-version"},
		githubRelease{Tag: "v3.6.16", Assets: []githubAsset{asset("v3.6.16", "sha256:"+hexB)}}, githubRelease{Tag: "v3.6.15"})
	u.put("https://dl.k8s.io/release/stable-1.36.txt", []byte("v1.36.10\n"))
	u.put("https://dl.k8s.io/release/v1.36.10/bin/linux/amd64/kubelet.sha256", []byte(hexB))
	image := pause("sha256:" + hexA)
	unreleased := lock.Component{Name: "flannel", Version: "v0.28.4", Modules: &lock.Modules{Source: "modules/flannel.txtar"}}
	newest := etcdAt("v3.7.1")
	newest.Name = "newest"

	f := newFetcher(t, Options{Mirror: u.URL})
	got, err := f.Updates(t.Context(), &lock.Lock{Components: []lock.Component{
		kubeletAt("v1.36.3"), etcdAt("v3.6.14"), image, unreleased, newest,
	}})
	if err != nil {
		t.Fatal(err)
	}
	const k, e = "components[0].release.amd64[0].", "components[1].release.amd64[0]."
	const kubelet = "https://dl.k8s.io/release/v1.36.10/bin/linux/amd64/kubelet"
	want := []Update{
		{Component: "kubernetes", From: "v1.36.3", To: "v1.36.10", Values: map[string]string{
			"components[0].version": "v1.36.10", k + "url": kubelet, k + "digest": "sha256:" + hexB, k + "published": kubelet + ".sha256",
			k + "signature.url": kubelet + ".sig", k + "signature.certificate": kubelet + ".cert",
		}},
		{Component: "etcd", From: "v3.6.14", To: "v3.6.16", Note: "raise go.etcd.io/etcd/server/v3 to v3.6.16 in modules/etcd.txtar too", Values: map[string]string{
			"components[1].version": "v3.6.16",
			e + "url":               "https://github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz",
			e + "digest":            "sha256:" + hexB, e + "size": "7", e + "published": "https://github.com/etcd-io/etcd/releases/tag/v3.6.16",
			e + "members.etcd": "etcd-v3.6.16-linux-amd64/etcd",
		}},
		{Component: "pause", From: "3.10.1", To: "3.10.1", Note: "nobody at registry.example tells versions: raise it by hand"},
		{Component: "flannel", From: "v0.28.4", To: "v0.28.4", Note: "has no release in the lock: raise its version in modules/flannel.txtar"},
		{Component: "newest", From: "v3.7.1", To: "v3.7.1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("updates (-want +got):\n%s", diff)
	}
	if asked := len(u.seen()); asked != 3 {
		t.Errorf("asked %d times, want a repository's releases only once", asked)
	}
}

// Where the API gives no digest, the files with checksums do, in the shapes that projects use.
func TestUpdateDigestFromChecksumFiles(t *testing.T) {
	const name = "etcd-v3.6.16-linux-amd64.tar.gz"
	for title, test := range map[string]struct {
		files map[string]string
		want  string
		err   string
	}{
		"bare in its own file":     {map[string]string{name + ".sha256": hexB + "\n"}, name + ".sha256", ""},
		"line in its own file":     {map[string]string{name + ".sha256sum": hexB + "  ./" + name + "\n"}, name + ".sha256sum", ""},
		"one file for all":         {map[string]string{"SHA256SUMS": hexA + "  other\n" + hexB + " *" + name + "\n"}, "SHA256SUMS", ""},
		"named after the project":  {map[string]string{"etcd.sha256sum": hexB + "  " + name + "\n"}, "etcd.sha256sum", ""},
		"bare, but in one for all": {map[string]string{"SHA256SUMS": hexB + "\n"}, "", "publishes no sha256 of " + name},
		"another's":                {map[string]string{"other.tar.gz.sha256sum": hexB + "  " + name + "\n"}, "", "publishes no sha256"},
		"no digest in it":          {map[string]string{name + ".sha256": "<html>"}, "", "publishes no sha256"},
		"none":                     {nil, "", "publishes no sha256 of " + name},
	} {
		t.Run(title, func(t *testing.T) {
			u := newUpstream(t)
			assets := []githubAsset{{Name: name, Size: 9}}
			for _, file := range slices.Sorted(maps.Keys(test.files)) {
				address := "https://github.com/etcd-io/etcd/releases/download/v3.6.16/" + file
				assets = append(assets, githubAsset{Name: file, URL: u.put(address, []byte(test.files[file]))})
			}
			u.releases(t, "etcd-io/etcd", githubRelease{Tag: "v3.6.16", Assets: assets})
			got, err := newFetcher(t, Options{Mirror: u.URL}).Updates(t.Context(), &lock.Lock{Components: []lock.Component{etcdAt("v3.6.14")}})
			if err != nil {
				t.Fatal(err)
			}
			if test.err != "" {
				if !strings.Contains(got[0].Problem, test.err) || len(got[0].Values) > 0 {
					t.Errorf("update is %+v, want the problem %q", got[0], test.err)
				}
				return
			}
			const field = "components[0].release.amd64[0]."
			if got[0].Values[field+"digest"] != "sha256:"+hexB || !strings.HasSuffix(got[0].Values[field+"published"], "/"+test.want) {
				t.Errorf("update is %+v", got[0])
			}
		})
	}
}

func TestUpdateProblems(t *testing.T) {
	u := newUpstream(t)
	u.releases(t, "etcd-io/etcd", githubRelease{Tag: "v3.6.16"})
	u.put("https://dl.k8s.io/release/stable-1.36.txt", []byte("v1.36.4"))
	u.put("https://dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet.sha256", []byte("<html>"))
	got, err := newFetcher(t, Options{Mirror: u.URL}).Updates(t.Context(), &lock.Lock{
		Components: []lock.Component{etcdAt("v3.6.14"), kubeletAt("v1.36.3"), kubeletAt("v1.99.1")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"release v3.6.16 of etcd-io/etcd has no etcd-v3.6.16-linux-amd64.tar.gz",
		"kubelet.sha256 has no digest",
		"stable-1.99.txt: 404 Not Found",
	} {
		if !strings.Contains(got[i].Problem, want) || got[i].Values != nil {
			t.Errorf("update %d is %+v, want the problem %q", i, got[i], want)
		}
	}
}

func TestUpdatesNeedTheNetwork(t *testing.T) {
	f := newFetcher(t, Options{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "dl.k8s.io", IsNotFound: true}
	})})
	_, err := f.Updates(t.Context(), &lock.Lock{Components: []lock.Component{kubeletAt("v1.36.3")}})
	var dns *net.DNSError
	if !errors.As(err, &dns) || !strings.Contains(err.Error(), "needs the network") || !strings.Contains(err.Error(), "mirror") {
		t.Errorf("error is %v", err)
	}
}
