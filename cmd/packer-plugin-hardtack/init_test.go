package main_test

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
)

// goreleaser is the part of .goreleaser.yml that decides the names of a release's files.
type goreleaser struct {
	Project string `yaml:"project_name"`
	Builds  []struct {
		ID     string
		Binary string
		Goos   []string
		Goarch []string
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

// release makes the files of a release of this plugin, named by .goreleaser.yml, whose zips of this system have this plugin.
func release(t *testing.T) map[string][]byte {
	t.Helper()
	var config goreleaser
	if err := yaml.Unmarshal([]byte(read(t, "../../.goreleaser.yml")), &config); err != nil {
		t.Fatal(err)
	}
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
	files, sums := map[string][]byte{}, ""
	for i, archive := range config.Archives {
		build := config.Builds[i]
		if archive.IDs[0] != build.ID || archive.Formats[0] != "zip" {
			t.Fatalf("%+v is not of %+v", archive, build)
		}
		for _, system := range build.Goos {
			for _, processor := range build.Goarch {
				values := map[string]any{"ProjectName": config.Project, "Version": version.Version, "Os": system, "Arch": processor,
					"Env": map[string]string{"API_VERSION": described.API}}
				program := []byte("for another system")
				if system == runtime.GOOS && processor == runtime.GOARCH {
					program = []byte(read(t, binary))
				}
				name := expand(t, archive.Name, values) + ".zip"
				files[name] = zipped(t, expand(t, build.Binary, values), program)
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
	hub := &github{files: release(t)}
	env, proxy := hub.serve(t)
	packer := packerWith(t, append(env, "PACKER_PLUGIN_PATH="+t.TempDir())...)
	dir := t.TempDir()
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
	if out, err := packer("validate", dir); err == nil || !strings.Contains(out, "packer init") {
		t.Fatalf("before: %v\n%s", err, out)
	}
	if out, err := packer("init", dir); err != nil || !strings.Contains(out, "Installed plugin github.com/hardtack/hardtack v"+version.Version) {
		t.Fatalf("packer init: %v\n%s\nit asked for %q", err, out, hub.asked)
	}
	proxy.close()
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
type github struct {
	files map[string][]byte

	mu    sync.Mutex
	asked []string
}

func (g *github) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked = append(g.asked, r.Host+r.URL.Path)
	g.mu.Unlock()
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

// listener hands on the connections that a proxy is given.
type listener struct {
	conns chan net.Conn
	tcp   net.Listener
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Addr() net.Addr { return l.tcp.Addr() }

func (l *listener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.tcp.Close()
		close(l.done)
	})
	return err
}

func (l *listener) close() { _ = l.Close() }

// serve starts the proxy, and returns the environment in which a program uses it and trusts what is behind it.
func (g *github) serve(t *testing.T) ([]string, *listener) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a stand-in for GitHub"}, DNSNames: []string{"github.com", "api.github.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := filepath.Join(t.TempDir(), "ca.crt")
	put(t, trusted, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{}), tcp: tcp}
	t.Cleanup(l.close)
	go func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			// CONNECT HOST:443, and headers up to an empty line.
			var request []byte
			for one := make([]byte, 1); !bytes.HasSuffix(request, []byte("\r\n\r\n")); request = append(request, one[0]) {
				if _, err := io.ReadFull(conn, one); err != nil {
					break
				}
			}
			if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil || !bytes.HasPrefix(request, []byte("CONNECT ")) {
				_ = conn.Close()
				continue
			}
			select {
			case l.conns <- tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}):
			case <-l.done:
				return
			}
		}
	}()
	go http.Serve(l, g) //nolint:errcheck,gosec // ends with the listener
	at := "http://" + tcp.Addr().String()
	return append(os.Environ(), "HTTPS_PROXY="+at, "https_proxy="+at, "NO_PROXY=", "no_proxy=", "SSL_CERT_FILE="+trusted, "SSL_CERT_DIR="+t.TempDir()), l
}
