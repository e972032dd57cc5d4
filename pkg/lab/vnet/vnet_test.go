package vnet

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers every connection with what it sends, after the caller's address.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, conn.RemoteAddr().String()+"\n")
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// call sends a text and returns the answer without its first line, which it returns first.
func call(t *testing.T, conn net.Conn, text string) (from, answer string) {
	t.Helper()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	from, answer, _ = strings.Cut(string(all), "\n")
	host, _, err := net.SplitHostPort(from)
	if err != nil {
		t.Fatalf("answer %q", all)
	}
	return host, answer
}

func within(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	tb.Cleanup(cancel)
	return ctx
}

func TestMachinesReachEachOtherAndServices(t *testing.T) {
	n := newNetwork(t, Config{})
	a := newGuest(t, n, attach(t, n, "a", "10.1.0.10"))
	b := newGuest(t, n, attach(t, n, "b", "10.1.0.11"))
	service, err := n.Listen(netip.MustParseAddrPort("169.254.169.254:80"))
	if err != nil {
		t.Fatal(err)
	}
	go echo(service)
	go echo(b.listen(t, 443))
	long := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		guest *guest
		to    string
		from  string
	}{
		{a, "10.1.0.11:443", "10.1.0.10"},
		{a, "169.254.169.254:80", "10.1.0.10"},
		{b, "169.254.169.254:80", "10.1.0.11"},
	} {
		conn, err := c.guest.dial(within(t), c.to)
		if err != nil {
			t.Fatalf("%s: %v", c.to, err)
		}
		if from, answer := call(t, conn, long); from != c.from || answer != long {
			t.Errorf("%s: came from %s with %d bytes, want %s and %d", c.to, from, len(answer), c.from, len(long))
		}
	}
	conn, err := n.Dial(within(t), netip.MustParseAddrPort("10.1.0.11:443"))
	if err != nil {
		t.Fatal(err)
	}
	if from, answer := call(t, conn, long); from != "10.1.0.1" || answer != long {
		t.Errorf("dialled: came from %s with %d bytes", from, len(answer))
	}
	addr, err := n.Forward(t.Context(), "127.0.0.1:0", To(netip.MustParseAddrPort("10.1.0.11:443")))
	if err != nil {
		t.Fatal(err)
	}
	host, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	if from, answer := call(t, host, long); from != "10.1.0.1" || answer != long {
		t.Errorf("forwarded: came from %s with %d bytes", from, len(answer))
	}
	if got := n.Refused(); len(got) != 0 {
		t.Errorf("refused %v", got)
	}
}
