package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// scaleCluster is the control plane of a document. Each of its masters has a network, a name, a /run and an /etc of its own,
// as a machine has: what it holds is gone with it, and who talks to it notices only that nobody answers.
type scaleCluster struct {
	dir       string
	store     store.Store
	authority pki.Authority
	masters   []*scaleMaster
}

// scaleMaster is one machine with the roles masters and etcd.
type scaleMaster struct {
	cluster *scaleCluster
	group   spec.Group
	address string
	// root has what the machine has for itself: its part of /etc, its /run, its logs and its data.
	root    string
	daemons map[string]*scaleDaemon
	// dead: it was cut off and ended.
	dead bool
}

// The network between the masters and everything else, which is at its first address.
const (
	scaleNetwork = "10.78.0."
	scaleBridge  = "scale"
	scaleName    = "masters.demo.k8s"
)

// scaleDaemons are what a master runs, in the order of their starts. What reaches nodes through tunnels is not among them: there
// are no nodes to reach.
var scaleDaemons = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "hardtack-controller"}

func sh(t *testing.T, script string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", append([]string{"-ec", script, "sh"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// newScaleCluster makes the machines that a document gives, with the user data that they would start with.
func newScaleCluster(t *testing.T, dir, document string) *scaleCluster {
	t.Helper()
	c := &scaleCluster{dir: dir, store: store.NewDir("/etc/hardtack/store")}
	complete := completed(t, document)
	if _, err := authority.Create(t.Context(), c.store, complete.Info(), time.Now()); err != nil {
		t.Fatal(err)
	}
	c.authority = readAuthority(t.Context(), t, c.store)
	sh(t, "ip link add $1 type bridge; ip address add $2/24 dev $1; ip link set $1 up", scaleBridge, scaleNetwork+"1")
	hosts := "127.0.0.1 localhost\n"
	for _, g := range complete.Groups {
		if !g.Roles.Has(role.Masters) {
			continue
		}
		m := &scaleMaster{cluster: c, group: g, address: fmt.Sprintf("%s%d", scaleNetwork, 11+len(c.masters)), daemons: map[string]*scaleDaemon{}}
		m.root = filepath.Join(dir, m.name())
		c.masters = append(c.masters, m)
		hosts += m.address + " " + scaleName + " " + role.MemberHost("demo", g.Member) + "\n"
		m.connect(t)
		m.prepare(t, complete)
	}
	if err := os.WriteFile("/etc/hosts", []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, programs.Bin, "hardtack-agent"), filepath.Join(dir, "usr/lib/hardtack/bin/hardtack-agent")); err != nil {
		t.Fatal(err)
	}
	return c
}

func (m *scaleMaster) name() string { return "master-" + m.group.Member }

// connect gives the machine its network.
func (m *scaleMaster) connect(t *testing.T) {
	t.Helper()
	sh(t, `ip netns add $1
ip link add $1 type veth peer name eth0 netns $1
ip link set $1 master $3
ip link set $1 up
ip -n $1 link set lo up
ip -n $1 address add $2/24 dev eth0
ip -n $1 link set eth0 up
ip -n $1 route add default via $4`, m.name(), m.address, scaleBridge, scaleNetwork+"1")
}

// prepare writes what user data and the agent write, until daemons may start.
func (m *scaleMaster) prepare(t *testing.T, complete *spec.Complete) {
	t.Helper()
	if err := os.CopyFS(filepath.Join(m.root, "etc"), os.DirFS(filepath.Join(root, "images/rootfs/etc"))); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"etc/hardtack/store", "etc/sysconfig", "run/hardtack/etcd", "run/konnectivity-server", "var/log/kube-apiserver", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := complete.UserData(m.group.Name, pki.EncodeCertificates(m.cluster.authority.Trusted()))
	if err != nil {
		t.Fatal(err)
	}
	parsed, problems := userdata.Parse(data, nil)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, f := range parsed.Files {
		name := filepath.Join(m.root, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	told, err := config.Read(m.root, config.Hardware{Why: "this is a test"})
	if err != nil {
		t.Fatal(err)
	}
	told, err = certs.Learn(t.Context(), certs.LearnOptions{Root: m.root, Roles: m.group.Roles, Config: told, Store: m.cluster.store})
	if err != nil {
		t.Fatal(err)
	}
	_, err = certs.Mint(t.Context(), certs.MintOptions{
		Root: m.root, Roles: m.group.Roles, Config: told, Store: m.cluster.store, Now: time.Now,
		Host: func() (certs.Host, error) {
			return certs.Host{Name: m.name(), Addresses: []netip.Addr{netip.MustParseAddr(m.address)}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	decide(t, m.cluster.store, filepath.Join(m.root, "run/hardtack/etcd"),
		etcd.Facts{Member: m.group.Member, PeerURL: machine.EtcdPeerURL("demo", m.group.Member, told.Etcd.Members)})
}

// scaleDaemon is a unit's command that is started again when it ends, as Restart=always does.
type scaleDaemon struct {
	log      run.Log
	mu       sync.Mutex
	cmd      *exec.Cmd
	restarts int
	ended    bool
	done     chan struct{}
}

// daemon starts a unit's command on the machine.
func (m *scaleMaster) daemon(t *testing.T, name string) {
	t.Helper()
	words, env := unitCommand(t, m.root, name, map[string]string{"ETCD_DATA_DIR": filepath.Join(m.root, "var/lib/etcd")})
	words[0] = filepath.Join(m.cluster.dir, words[0])
	// Every step replaces its process, so that the one that is started is the daemon.
	script := `hostname "$1"
mount --bind /etc/hardtack/store "$2/etc/hardtack/store"
for d in etc/kubernetes etc/sysconfig etc/hardtack run var/log; do mount --rbind "$2/$d" "/$d"; done
shift 2
exec "$@"`
	args := append([]string{"--net=" + m.netns(), "unshare", "--mount", "--uts", "sh", "-ec", script, "sh", m.name(), m.root}, words...)
	d := &scaleDaemon{done: make(chan struct{})}
	m.daemons[name] = d
	started := make(chan error)
	go d.keep(func() *exec.Cmd {
		cmd := exec.CommandContext(interrupted, "nsenter", args...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &d.log, &d.log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd
	}, started)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.end)
}

// keep starts the command whenever it is not running, two seconds after its end as the units do.
func (d *scaleDaemon) keep(command func() *exec.Cmd, started chan<- error) {
	runtime.LockOSThread() // with the thread that started it a process would end
	defer close(d.done)
	for {
		cmd := command()
		d.mu.Lock()
		if d.ended {
			d.mu.Unlock()
			return
		}
		err := cmd.Start()
		d.cmd = cmd
		d.mu.Unlock()
		if started != nil {
			started <- err
			started = nil
		}
		if err != nil {
			return
		}
		_ = cmd.Wait()
		d.mu.Lock()
		ended := d.ended
		d.restarts++
		d.mu.Unlock()
		if !ended {
			time.Sleep(2 * time.Second)
		}
	}
}

// end ends it for good.
func (d *scaleDaemon) end() {
	d.mu.Lock()
	d.ended = true
	_ = d.cmd.Process.Kill()
	d.mu.Unlock()
	<-d.done
}

func (d *scaleDaemon) state() (pid, restarts int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Pid, d.restarts
}

func (m *scaleMaster) netns() string { return "/run/netns/" + m.name() }

// cut takes the machine off the network, as the loss of its power does, and then ends what it ran: nobody gets a last word.
func (m *scaleMaster) cut(t *testing.T) {
	t.Helper()
	sh(t, "ip link set $1 down", m.name())
	var all sync.WaitGroup
	for _, d := range m.daemons {
		all.Go(d.end)
	}
	all.Wait()
	m.dead = true
}

// dial connects from inside the machine, whose own addresses some daemons answer at only.
func (m *scaleMaster) dial(ctx context.Context, network, address string) (net.Conn, error) {
	back, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer func() { _ = back.Close() }()
	inside, err := os.Open(m.netns())
	if err != nil {
		return nil, err
	}
	defer func() { _ = inside.Close() }()
	runtime.LockOSThread()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
	if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	return conn, err
}

// config is a client of the cluster with a certificate of its own, at the masters' name.
func (c *scaleCluster) config(t *testing.T, user string, groups ...string) *rest.Config {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(c.kubeconfig(t, user, groups...))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func (c *scaleCluster) kubeconfig(t *testing.T, user string, groups ...string) []byte {
	t.Helper()
	pair, err := c.authority.Issue(pki.Profile{Name: user, Groups: groups, Usage: pki.Client, Life: 6 * time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return pki.Kubeconfig{Server: "https://" + scaleName, CA: pki.EncodeCertificates(c.authority.Trusted()), User: user, Pair: pair}.Render()
}
