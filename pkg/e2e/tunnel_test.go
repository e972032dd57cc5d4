package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// tunnel is both ends of an API server's way to nodes, with the image's programs.
type tunnel struct {
	*testing.T
	dir, bin  string
	authority pki.Authority
	// port is where agents connect.
	port string
}

func newTunnel(t *testing.T) *tunnel {
	t.Helper()
	programs.NeedBuilt(t, programs.DefaultLock(t), "konnectivity")
	u := &tunnel{T: t, dir: t.TempDir()}
	programs.Install(t, u.dir, programs.DefaultLock(t), "konnectivity")
	u.bin = filepath.Join(u.dir, programs.Bin)
	u.authority = newAuthority(t)
	u.trust("server-trusts.crt", u.authority)
	u.trust("agent-trusts.crt", u.authority)
	u.certify("server", pki.Profile{Name: "konnectivity-server", Usage: pki.Server, Names: []string{"localhost"}, Life: time.Hour})
	u.certify("node", nodeProfile("node-a"))
	_, u.port, _ = net.SplitHostPort(freeAddress(t))
	u.asks("localhost")
	u.start("konnectivity-server", "--socket="+u.path("api.sock"), "--agents=:"+u.port, "--id=master-a",
		"--cert="+u.path("server.crt"), "--key="+u.path("server.key"), "--client-ca="+u.path("server-trusts.crt"))
	return u
}

func newAuthority(t *testing.T) pki.Authority {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.NewAuthority("kubernetes", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func nodeProfile(name string) pki.Profile {
	return pki.Profile{Name: "system:node:" + name, Groups: []string{"system:nodes"}, Usage: pki.Client, Life: time.Hour}
}

func (u *tunnel) path(name string) string { return filepath.Join(u.dir, name) }

func (u *tunnel) write(name string, data []byte) {
	u.Helper()
	if err := os.WriteFile(u.path(name), data, 0o600); err != nil {
		u.Fatal(err)
	}
}

func (u *tunnel) trust(name string, all ...pki.Authority) {
	u.Helper()
	var text []byte
	for _, a := range all {
		text = append(text, pki.EncodeCertificate(a.Certificate)...)
	}
	u.write(name, text)
}

func (u *tunnel) certify(name string, p pki.Profile) {
	u.Helper()
	pair, err := u.authority.Issue(p, time.Now())
	if err != nil {
		u.Fatal(err)
	}
	u.write(name+".crt", pair.Certificate)
	u.write(name+".key", pair.Key)
}

// start starts a program and waits until it has told systemd that it works.
func (u *tunnel) start(program string, args ...string) (*exec.Cmd, *run.Log) {
	u.Helper()
	return u.startUntil("READY=1", program, args...)
}

// startUntil starts a program and waits until it has told systemd something.
func (u *tunnel) startUntil(word, program string, args ...string) (*exec.Cmd, *run.Log) {
	u.Helper()
	told, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: u.path(program + ".notify"), Net: "unixgram"})
	if err != nil {
		u.Fatal(err)
	}
	u.Cleanup(func() { _ = told.Close(); _ = os.Remove(u.path(program + ".notify")) })
	cmd := exec.CommandContext(u.Context(), filepath.Join(u.bin, program), args...)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+u.path(program+".notify"))
	log := background(u.T, cmd)
	if err := told.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		u.Fatal(err)
	}
	for text := make([]byte, 4096); ; {
		n, err := told.Read(text)
		if err != nil {
			u.Fatalf("%s has not said %q: %v\n%s", program, word, err, log)
		}
		if strings.Contains(string(text[:n]), word) {
			return cmd, log
		}
	}
}

// get asks for a page as an API server asks a pod.
func (u *tunnel) get(url string) (string, error) {
	ctx, cancel := context.WithTimeout(u.Context(), answerWithin)
	defer cancel()
	way, err := client.CreateSingleUseGrpcTunnelWithContext(ctx, ctx, "unix://"+u.path("api.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	asks := http.Client{Transport: &http.Transport{DialContext: way.DialContext, DisableKeepAlives: true}}
	answer, err := asks.Get(url)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// connect connects as an agent that says of itself what it wants, and returns why it is refused.
func (u *tunnel) connect(certificate string, says map[string]string) error {
	u.Helper()
	ctx, cancel := context.WithTimeout(u.Context(), answerWithin)
	defer cancel()
	config := &tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	config.RootCAs.AddCert(u.authority.Certificate)
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(u.path(certificate+".crt"), u.path(certificate+".key"))
		if err != nil {
			u.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	conn, err := grpc.NewClient("127.0.0.1:"+u.port, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		u.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := conn.NewStream(grpcmetadata.NewOutgoingContext(ctx, grpcmetadata.New(says)), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/AgentService/Connect")
	if err != nil {
		return err
	}
	// An agent that is taken is told the server's name; one that is not, the reason instead of a packet.
	header, err := stream.Header()
	if err != nil {
		return err
	}
	if len(header.Get("serverID")) == 1 {
		return nil
	}
	return stream.RecvMsg(&emptypb.Empty{})
}

// TestTunnel has the image's programs carry a request from a socket to a page, with every file of theirs replaced meanwhile.
func TestTunnel(t *testing.T) {
	t.Parallel()
	u := newTunnel(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "a pod") }))
	defer page.Close()
	if text, err := u.get(page.URL); err == nil {
		t.Fatalf("without a node: %q", text)
	}
	agent, log := u.start("konnectivity-agent", "--kubeconfig="+u.path("kubeconfig"), "--port="+u.port)
	if text, err := u.get(page.URL); text != "a pod" || err != nil {
		t.Fatalf("%q, %v\n%s", text, err, log)
	}

	// Another authority, in the steps of `pki rotate`: both trusted, the new one signs, the old one is gone. Nothing is started again
	// but by its own end.
	old := u.authority
	u.authority = newAuthority(t)
	u.trust("server-trusts.crt", old, u.authority)
	u.trust("agent-trusts.crt", old, u.authority)
	u.certify("server", pki.Profile{Name: "konnectivity-server", Usage: pki.Server, Names: []string{"localhost"}, Life: time.Hour})
	u.certify("node", nodeProfile("node-a"))
	u.trust("server-trusts.crt", u.authority)
	u.trust("agent-trusts.crt", u.authority)
	if text, err := u.get(page.URL); text != "a pod" || err != nil {
		t.Fatalf("after the authority was replaced: %q, %v\n%s", text, err, log)
	}
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = agent.Wait()
	// The server sees the end of the connection: what is asked then fails at once, and does not wait for a node that is gone.
	eventuallyRefused(t, func() error { _, err := u.get(page.URL); return err })
	if err := os.Remove(u.path("konnectivity-agent.notify")); err != nil {
		t.Fatal(err)
	}
	_, log = u.start("konnectivity-agent", "--kubeconfig="+u.path("kubeconfig"), "--port="+u.port)
	if text, err := u.get(page.URL); text != "a pod" || err != nil {
		t.Fatalf("with the new authority alone: %q, %v\n%s", text, err, log)
	}
}

func eventuallyRefused(t *testing.T, ask func() error) {
	t.Helper()
	for until := time.Now().Add(answerWithin); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if ask() != nil {
			return
		}
	}
	t.Fatal("a node that is gone still answers")
}

// asks writes the agent's kubeconfig: the name of the masters, and the node's certificate.
func (u *tunnel) asks(host string) {
	u.write("kubeconfig", pki.Kubeconfig{Server: "https://" + host + ":443", CAFile: u.path("agent-trusts.crt"), User: "node",
		CertificateFile: u.path("node.crt"), KeyFile: u.path("node.key")}.Render())
}

// TestTunnelOfMaster: the kubeconfig of a machine that is a master too names 127.0.0.1.
func TestTunnelOfMaster(t *testing.T) {
	t.Parallel()
	u := newTunnel(t)
	u.certify("server", pki.Profile{Name: "konnectivity-server", Usage: pki.Server, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Life: time.Hour})
	u.asks("127.0.0.1")
	u.start("konnectivity-agent", "--kubeconfig="+u.path("kubeconfig"), "--port="+u.port)
}

// TestTunnelReasons: an agent without a master says why, in the words by which hardtack-ready finds the next step.
func TestTunnelReasons(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(u *tunnel, agent *[]string){
		"STATUS=[unreachable] no master is connected": func(u *tunnel, agent *[]string) {
			_, closed, err := net.SplitHostPort(freeAddress(u.T))
			if err != nil {
				u.Fatal(err)
			}
			*agent = append(*agent, "--port="+closed)
		},
		"STATUS=[untrusted] no master is connected": func(u *tunnel, _ *[]string) { u.trust("agent-trusts.crt", newAuthority(u.T)) },
		"STATUS=[dns] ": func(u *tunnel, _ *[]string) {
			u.asks("nobody.invalid")
		},
	} {
		t.Run(strings.TrimPrefix(strings.Fields(want)[0], "STATUS="), func(t *testing.T) {
			t.Parallel()
			u := newTunnel(t)
			args := []string{"--kubeconfig=" + u.path("kubeconfig"), "--port=" + u.port}
			spoil(u, &args)
			u.startUntil(want, "konnectivity-agent", args...)
		})
	}
}

// TestTunnelIdentity: only a node is an agent, and only for itself. Without the check each of these would be taken, and be given
// requests that are meant for others.
func TestTunnelIdentity(t *testing.T) {
	t.Parallel()
	u := newTunnel(t)
	u.certify("admin", pki.Profile{Name: "hardtack:admin", Groups: []string{pki.GroupAdmins}, Usage: pki.Client, Life: time.Hour})
	u.certify("named", pki.Profile{Name: "system:node:node-a", Usage: pki.Client, Life: time.Hour})
	u.certify("serving", pki.Profile{Name: "system:node:node-a", Groups: []string{"system:nodes"}, Usage: pki.Server, Life: time.Hour})
	says := func(id, who string) map[string]string {
		return map[string]string{"agentID": id, "agentIdentifiers": who}
	}
	for what, c := range map[string]struct {
		certificate string
		says        map[string]string
		want        codes.Code
	}{
		"a node as itself":                         {"node", says("node-a", "host=node-a&ipv4=127.0.0.1"), codes.OK},
		"a node without identifiers":               {"node", says("node-a", ""), codes.OK},
		"no certificate":                           {"", says("node-a", ""), codes.Unavailable},
		"an administrator":                         {"admin", says("node-a", ""), codes.Unavailable},
		"a node's name without the nodes' group":   {"named", says("node-a", ""), codes.Unavailable},
		"a node's certificate for serving":         {"serving", says("node-a", ""), codes.Unavailable},
		"another node's name":                      {"node", says("node-b", ""), codes.PermissionDenied},
		"another node's host":                      {"node", says("node-a", "host=node-b"), codes.PermissionDenied},
		"another node's address":                   {"node", says("node-a", "ipv4=10.1.0.11"), codes.PermissionDenied},
		"its own address and another's":            {"node", says("node-a", "ipv4=127.0.0.1&ipv4=10.1.0.11"), codes.PermissionDenied},
		"another node's address of the other kind": {"node", says("node-a", "ipv6=fd00::11"), codes.PermissionDenied},
		"a range":               {"node", says("node-a", "cidr=0.0.0.0/0"), codes.PermissionDenied},
		"the way to everything": {"node", says("node-a", "default-route=true"), codes.PermissionDenied},
	} {
		t.Run(what, func(t *testing.T) {
			if err := u.connect(c.certificate, c.says); status.Code(err) != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}
