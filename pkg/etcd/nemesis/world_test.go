package nemesis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// The cluster that every schedule runs. The suffix is the cluster's part of its names.
const (
	clusterName = "demo"
	suffix      = "." + clusterName + ".k8s."
	clientPort  = "2379"
)

// world is the surroundings of one cluster: a network, volumes, and names. Several are in one test process at once, each
// with a subnet of its own.
type world struct {
	number  int
	dir     string // on a tmpfs
	backups bool   // there is a place for them
	etcd    string // the directory of etcd's programs
	tls     tlsFiles
	store   *records
	steps   atomic.Int64 // that agents have taken, and clients
	cpu     atomic.Int64 // of etcd, in ns
	torn    atomic.Int64 // databases of learners that were torn

	mu       sync.Mutex
	events   []string
	began    time.Time
	machines []*machine
	volumes  []*ebs
	names    map[string]netip.Addr // of the members, as the reconcile would have them
	firsts   map[string]int        // how often each seat began a cluster
	made     map[string]string     // the volumes that the operator asked for, by the token of the request
	operator sync.Mutex            // one request for a volume after another
	seats    []string              // the members, as the cluster's document has them; the schedule's own
	enough   func() bool           // whether enough is wrong already; nil waits for the end
	broken   []string              // what must never happen and did, outside of the clients' view
}

// logf keeps an event for the story of a schedule, which is told when it fails.
func (w *world) logf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, fmt.Sprintf("%8.3f ", time.Since(w.began).Seconds())+fmt.Sprintf(format, args...))
}

// breach records that a rule was broken which the clients may not have seen.
func (w *world) breach(format string, args ...any) {
	w.logf("BREACH: "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if text := fmt.Sprintf(format, args...); len(w.broken) < 5 && !slices.Contains(w.broken, text) {
		w.broken = append(w.broken, text)
	}
}

// isBroken reports whether there was a breach.
func (w *world) isBroken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.broken) > 0
}

// inNamespaces runs the test again in namespaces of its own, so that nothing of it is left when it ends however it ends.
// It reports whether this is that run.
func inNamespaces(t *testing.T) bool {
	t.Helper()
	const inside = "HARDTACK_NEMESIS_INSIDE"
	if os.Getenv(inside) != "" {
		return true
	}
	args := []string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", os.Args[0]}
	for _, arg := range os.Args[1:] {
		if !strings.HasPrefix(arg, "-test.run=") && !strings.HasPrefix(arg, "-test.testlogfile=") && !strings.HasPrefix(arg, "-test.paniconexit0") {
			args = append(args, arg)
		}
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append(args, "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) }
	if err := cmd.Run(); err != nil {
		t.Errorf("in its own namespaces: %v", err)
	}
	return false
}

// prepare makes the places that all worlds share.
func prepare(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	// ip and ss go into a machine's network with a copy of all mounts. If an unmount did not reach that copy, a file system that had
	// lost its power would live on in it, and its next mount would fail with EIO.
	script := fmt.Sprintf(`mount --make-rshared /
ip link set lo up
mkdir -p %[1]s /run/netns
mount -t tmpfs -o size=75%% tmpfs %[1]s
mount -t tmpfs tmpfs /run/netns
mount --bind %[2]s /etc/resolv.conf`, work, resolv)
	shell(t.Context(), t, script)
	t.Cleanup(func() { shell(context.Background(), t, "umount /etc/resolv.conf\numount "+work) })
	return work
}

func shell(ctx context.Context, t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(ctx, "sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
}

// newWorld makes the bridge of world number, which is at most 200.
func newWorld(t *testing.T, number int, dir, etcd string, tls tlsFiles) *world {
	t.Helper()
	w := &world{number: number, etcd: etcd, tls: tls, began: time.Now(), names: map[string]netip.Addr{}, firsts: map[string]int{}, made: map[string]string{}, seats: slices.Clone(seats),
		dir: filepath.Join(dir, fmt.Sprint("world-", number))}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	shell(t.Context(), t, fmt.Sprintf("ip link add %[1]s type bridge\nip address add %[2]s/24 dev %[1]s\nip link set %[1]s up", w.bridge(), w.address(1)))
	return w
}

func (w *world) bridge() string { return fmt.Sprint("nm", w.number) }

func (w *world) address(host int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 78, byte(w.number), byte(host)})
}

// end takes everything of the world away.
func (w *world) end(t *testing.T) {
	t.Helper()
	for _, m := range w.machines {
		m.powerOff()
	}
	for _, v := range w.volumes {
		v.free()
	}
	shell(context.WithoutCancel(t.Context()), t, "ip link delete "+w.bridge())
	if err := os.RemoveAll(w.dir); err != nil {
		t.Error(err)
	}
}

// machine is one computer of a world. It lives once: a machine that is replaced is another one, with another address.
type machine struct {
	w       *world
	seat    string // the member that it is to be
	id      string
	address netip.Addr
	ns      string
	link    string // the world's end of its cable

	off    context.CancelCauseFunc
	done   chan struct{}
	dns    *dns.Server
	mu     sync.Mutex
	view   map[string]netip.Addr // names as this machine sees them; nil is as they are
	held   *ebs
	daemon *daemon
	lost   bool         // ended, for good
	row    etcd.Row     // what its agent reported last; etcd.V0Silent if nothing
	writes atomic.Int64 // that its etcd has acknowledged
	// skew is what the machine's clock is wrong by, and old what it still sees of the store; nil is what is there.
	skew time.Duration
	old  map[string][]byte
}

// newMachine makes a machine for a seat. It does nothing until it is started.
func (w *world) newMachine(t *testing.T, seat string) *machine {
	t.Helper()
	w.mu.Lock()
	n := len(w.machines) + 2
	w.mu.Unlock()
	if n > 254 {
		t.Fatal("a world has no more addresses: fewer faults a schedule")
	}
	m := &machine{w: w, seat: seat, id: fmt.Sprintf("i-%016x%d", w.number, n), address: w.address(n), ns: fmt.Sprintf("nm%dm%d", w.number, n), link: fmt.Sprintf("v%dm%d", w.number, n)}
	w.mu.Lock()
	w.machines = append(w.machines, m)
	w.mu.Unlock()
	shell(t.Context(), t, fmt.Sprintf(`ip netns add %[1]s
ip link add %[2]s type veth peer name eth0 netns %[1]s
ip link set %[2]s master %[3]s up
ip -n %[1]s link set lo up
ip -n %[1]s address add %[4]s/24 dev eth0
ip -n %[1]s link set eth0 up`, m.ns, m.link, w.bridge(), m.address))
	m.resolve(t)
	return m
}

// inside calls f with this thread in the machine's network.
func (m *machine) inside(f func() error) error {
	runtime.LockOSThread()
	before, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer before.Close()
	there, err := os.Open("/run/netns/" + m.ns)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer there.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays locked, and ends with its goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// dial connects from the machine. A name is resolved as the machine resolves it.
func (m *machine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		var ok bool
		if ip, ok = m.lookup(host); !ok {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		}
	}
	var conn net.Conn
	err = m.inside(func() error {
		var err error
		conn, err = (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, net.JoinHostPort(ip.String(), port))
		return err
	})
	return conn, err
}

// lookup is what the machine is told of a name.
func (m *machine) lookup(name string) (netip.Addr, bool) {
	name = strings.TrimSuffix(name, ".") + "."
	if name == "localhost." {
		return netip.MustParseAddr("127.0.0.1"), true
	}
	m.mu.Lock()
	view := m.view
	m.mu.Unlock()
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	if view == nil {
		view = m.w.names
	}
	ip, ok := view[name]
	return ip, ok
}

// resolve starts the name server that the machine's programs ask.
func (m *machine) resolve(t *testing.T) {
	t.Helper()
	var conn net.PacketConn
	err := m.inside(func() error {
		var err error
		conn, err = net.ListenPacket("udp", "127.0.0.1:53")
		return err
	})
	if err != nil {
		t.Fatalf("a name server for %s: %v", m.ns, err)
	}
	m.dns = &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetReply(query)
		question := query.Question[0]
		ip, ok := m.lookup(question.Name)
		switch {
		case !ok:
			answer.SetRcode(query, dns.RcodeNameError)
		case question.Qtype == dns.TypeA:
			answer.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: question.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: ip.AsSlice()}}
		}
		_ = rw.WriteMsg(answer)
	})}
	go func() { _ = m.dns.ActivateAndServe() }()
}

// powerOff ends the machine for good: its processes at once, with nothing flushed, and its network.
func (m *machine) powerOff() {
	m.mu.Lock()
	if m.lost {
		m.mu.Unlock()
		return
	}
	m.lost = true
	m.mu.Unlock()
	m.crash()
	if m.dns != nil {
		_ = m.dns.Shutdown()
	}
	_ = exec.Command("ip", "link", "delete", m.link).Run() // at once, where the kernel would do it later
	_ = exec.Command("ip", "netns", "delete", m.ns).Run()
	if v := m.volume(); v != nil {
		v.detach(m)
	}
}

// crash is a loss of power: everything that runs ends, and what was not synced is gone.
func (m *machine) crash() {
	m.mu.Lock()
	off, done, d, v := m.off, m.done, m.daemon, m.held
	m.off, m.done, m.daemon = nil, nil, nil
	m.mu.Unlock()
	if d != nil {
		m.freeze(d)
	}
	if v != nil {
		v.cut()
	}
	if d != nil {
		d.kill()
	}
	if off != nil {
		off(errors.New("power lost"))
		<-done
	}
	m.mu.Lock()
	d = m.daemon // one that the procedure began after the first look
	m.daemon = nil
	m.mu.Unlock()
	if d != nil {
		m.freeze(d)
		d.kill()
	}
	if v != nil {
		v.unmount()
	}
	_ = os.Remove(m.environment()) // /run is empty after a boot
}

// freeze stops etcd, and ends the machine's connections with what waits in them to be sent: the kernel would still deliver that
// after the process has ended, and after a partition has. It comes before the end of the file system, which is not one moment: an
// fdatasync that ext4's shutdown meets on its way may return success for what is then gone (3 of 400 tries on Linux 6.18), and
// etcd would acknowledge that.
func (m *machine) freeze(d *daemon) {
	d.signal(syscall.SIGSTOP)
	if out, err := exec.Command("ss", "--net", m.ns, "--tcp", "--kill").CombinedOutput(); err != nil {
		m.w.breach("dropping the connections of %s: %v: %s", m.id, err, out)
	}
}

// mountpoint is where the machine has its member's volume.
func (m *machine) mountpoint() string { return filepath.Join(m.w.dir, "mnt-"+m.id) }

// environment is the file that the agent leaves for etcd's unit.
func (m *machine) environment() string { return filepath.Join(m.w.dir, m.id+".env") }

func (m *machine) volume() *ebs {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// start lets the machine boot with a procedure that brings up its etcd.
func (m *machine) start(ctx context.Context, run func(context.Context, *machine) error) {
	ctx, off := context.WithCancelCause(ctx)
	done := make(chan struct{})
	m.mu.Lock()
	m.off, m.done, m.row = off, done, etcd.V0Silent
	m.mu.Unlock()
	go func() {
		defer close(done)
		if err := run(ctx, m); err != nil && ctx.Err() == nil {
			m.w.logf("%s (%s) stops: %v", m.seat, m.id, err)
		}
	}()
}

// restart ends the agent, wherever it is, and starts another one. etcd goes on.
func (m *machine) restart(ctx context.Context, run procedure) {
	m.mu.Lock()
	off, done := m.off, m.done
	m.mu.Unlock()
	if off == nil {
		return
	}
	off(errors.New("the agent was killed"))
	<-done
	m.start(ctx, run)
}

// sees lets the machine have a view of its own of the names; nil ends it.
func (m *machine) sees(view map[string]netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.view = view
}

// remembers lets the machine read what was in the store once; nil ends it.
func (m *machine) remembers(old map[string][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.old = old
}

// claim points the seat's name at the machine, as the reconcile does for the holder of the volume.
func (m *machine) claim() {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.names[memberName(m.seat)] = m.address
}

// memberName is the name of a seat, as the names have it.
func memberName(seat string) string { return "etcd-" + seat + suffix }

// block drops what the machine sends to another one; unblock ends that.
func (m *machine) block(to *machine) { m.route("add", to) }

func (m *machine) unblock(to *machine) { m.route("delete", to) }

func (m *machine) route(verb string, to *machine) {
	// A machine that has ended has no routes, which is as good.
	_ = exec.Command("ip", "-n", m.ns, "route", verb, "blackhole", to.address.String()+"/32").Run()
}
