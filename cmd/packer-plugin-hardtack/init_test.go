package main_test

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// goreleaser is the part of .goreleaser.yml that decides the names of a release's files.
type goreleaser struct {
	Project string `yaml:"project_name"`
	Builds  []struct {
		ID      string
		Binary  string
		LDFlags string `yaml:"ldflags"`
		Goos    []string
		Goarch  []string
	}
	Archives []struct {
		ID      string
		IDs     []string
		Formats []string
		Name    string `yaml:"name_template"`
	}
	Checksum struct {
		Name string `yaml:"name_template"`
	}
}

// expand is a name of .goreleaser.yml for a system.
func expand(t *testing.T, text string, values map[string]any) string {
	t.Helper()
	var out strings.Builder
	if err := template.Must(template.New("").Option("missingkey=error").Parse(text)).Execute(&out, values); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// apiVersion is the version of Packer's plugin API that this plugin says it has.
func apiVersion(t *testing.T) string {
	t.Helper()
	var described struct {
		API string `json:"api_version"`
	}
	out, err := exec.CommandContext(t.Context(), binary, "describe").Output()
	if err == nil {
		err = json.Unmarshal(out, &described)
	}
	if err != nil {
		t.Fatal(err)
	}
	return described.API
}

func releases(t *testing.T) (config goreleaser) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, "../../.goreleaser.yml")), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// released is this plugin as a release has it, by the linker flags of .goreleaser.yml.
func released(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "released")
	flags := expand(t, releases(t).Builds[0].LDFlags, map[string]any{"Version": version.Version})
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", flags, "-o", file, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the plugin of a release: %v\n%s", err, out)
	}
	return file
}

// release makes the files of a release, named by .goreleaser.yml, whose zips of this system have the plugin.
func release(t *testing.T, plugin string) map[string][]byte {
	t.Helper()
	config, api := releases(t), apiVersion(t)
	files, sums := map[string][]byte{}, ""
	for i, archive := range config.Archives {
		build := config.Builds[i]
		if archive.IDs[0] != build.ID || archive.Formats[0] != "zip" {
			t.Fatalf("%+v is not of %+v", archive, build)
		}
		for _, system := range build.Goos {
			for _, processor := range build.Goarch {
				values := map[string]any{"ProjectName": config.Project, "Version": version.Version, "Os": system, "Arch": processor,
					"Env": map[string]string{"API_VERSION": api}}
				program := []byte("for another system")
				if system == runtime.GOOS && processor == runtime.GOARCH {
					program = []byte(read(t, plugin))
				}
				name := expand(t, archive.Name, values) + ".zip"
				inside := expand(t, build.Binary, values)
				if system == "windows" { // GoReleaser and Packer both add it
					inside += ".exe"
				}
				files[name] = zipped(t, inside, program)
				sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(files[name]), name)
			}
		}
	}
	files[expand(t, config.Checksum.Name, map[string]any{"ProjectName": config.Project, "Version": version.Version})] = []byte(sums)
	return files
}

func zipped(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestPackerInit installs a release by `packer init`, from a stand-in for GitHub's API and its pages of releases, with the names that
// .goreleaser.yml gives. Packer has no setting for another server, so that the stand-in is its proxy.
func TestPackerInit(t *testing.T) {
	t.Run("a release", func(t *testing.T) { initInstalls(t, release(t, released(t))) })
	// What is built between releases is not one by its name: Packer asks the program itself.
	t.Run("a build between releases", func(t *testing.T) {
		packer, dir, _ := initFrom(t, release(t, binary))
		if out, err := packer("init", dir); err == nil || !strings.Contains(out, version.Version+"-dev") {
			t.Errorf("packer init: %v\n%s", err, out)
		}
	})
}

// initFrom is a Packer that finds the files of a release, and a directory with a template that asks for the plugin. down ends the server.
func initFrom(t *testing.T, files map[string][]byte) (packer func(args ...string) (string, error), dir string, down func()) {
	t.Helper()
	hub := &github{files: files}
	env, proxy := hub.serve(t)
	packer = packerWith(t, append(env, "PACKER_PLUGIN_PATH="+t.TempDir())...)
	dir = t.TempDir()
	put(t, filepath.Join(dir, "main.pkr.hcl"), `packer {
  required_plugins {
    hardtack = {
      source  = "github.com/hardtack/hardtack"
      version = ">= `+version.Version+`"
    }
  }
}

data "hardtack-lock" "this" {}

source "null" "this" { communicator = "none" }

build {
  sources = ["null.this"]
}
`)
	return packer, dir, proxy.Close
}

// initInstalls installs the files of a release by `packer init`, and uses the plugin.
func initInstalls(t *testing.T, files map[string][]byte) {
	t.Helper()
	packer, dir, down := initFrom(t, files)
	if out, err := packer("validate", dir); err == nil || !strings.Contains(out, "packer init") {
		t.Fatalf("before: %v\n%s", err, out)
	}
	if out, err := packer("init", dir); err != nil || !strings.Contains(out, "Installed plugin github.com/hardtack/hardtack v"+version.Version) {
		t.Fatalf("packer init: %v\n%s", err, out)
	}
	down()
	// The data source of the installed plugin answers.
	if out, err := packer("build", "-color=false", dir); err != nil {
		t.Errorf("packer build: %v\n%s", err, out)
	}
	if out, err := packer("plugins", "installed"); err != nil || !strings.Contains(out, "packer-plugin-hardtack_v"+version.Version) {
		t.Errorf("packer plugins installed: %v\n%s", err, out)
	}
}

// TestPluginCheck: packer-sdc takes the plugin.
func TestPluginCheck(t *testing.T) {
	tool, err := exec.CommandContext(t.Context(), "go", "tool", "-n", "packer-sdc").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(tool)), "plugin-check", filepath.Base(binary))
	cmd.Dir = filepath.Dir(binary)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// github stands in for api.github.com, and for the files of releases at github.com, as packer init asks for them: the tags of a
// repository (REST API, "List matching references"), and files by their names.
type github struct{ files map[string][]byte }

func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const repository = "/hardtack/packer-plugin-hardtack"
	tag := "v" + version.Version
	dir, name := path.Split(r.URL.Path)
	switch {
	case r.Host == "api.github.com" && r.URL.Path == "/repos"+repository+"/git/matching-refs/tags":
		fmt.Fprintf(w, `[{"ref":"refs/tags/%s"}]`, tag)
	case r.Host == "github.com" && dir == repository+"/releases/download/"+tag+"/" && g.files[name] != nil:
		w.Write(g.files[name]) //nolint:errcheck // the client says what it has not got
	default:
		http.NotFound(w, r)
	}
}

// serve starts the stand-in and a proxy that leads every connection to it, and returns the environment in which a program uses the
// proxy and trusts what is behind it.
func (g *github) serve(t *testing.T) (env []string, proxy *httptest.Server) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.NewAuthority("a stand-in for GitHub", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(pki.Profile{Name: "github.com", Usage: pki.Server, Names: []string{"github.com", "api.github.com"}, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := filepath.Join(t.TempDir(), "ca.crt")
	put(t, trusted, string(pki.EncodeCertificates(a.Trusted())))
	hub := httptest.NewUnstartedServer(g)
	hub.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	hub.StartTLS()
	t.Cleanup(hub.Close)
	proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", hub.Listener.Addr().String())
		if err != nil || r.Method != http.MethodConnect {
			http.Error(w, fmt.Sprint("only CONNECT: ", err), http.StatusBadGateway)
			return
		}
		// The answer comes after the hijacking: the server may have read a byte of the client's by then, which only the buffer has.
		from, buffered, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_, err = io.WriteString(from, "HTTP/1.1 200 OK\r\n\r\n")
		}
		if err != nil {
			t.Error(err)
			return
		}
		go func() {
			defer to.Close()      //nolint:errcheck // both ends have gone
			io.Copy(to, buffered) //nolint:errcheck // the client says what it has not got
		}()
		defer from.Close() //nolint:errcheck // both ends have gone
		io.Copy(from, to)  //nolint:errcheck // the client says what it has not got
	}))
	t.Cleanup(proxy.Close)
	return append(os.Environ(), "HTTPS_PROXY="+proxy.URL, "https_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE="+trusted, "SSL_CERT_DIR="+t.TempDir()), proxy
}
