package zone_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// at is the zone of a server, reached with a key.
func at(t *testing.T, server, keyFile string, more ...func(*zone.RFC2136Config)) *zone.RFC2136 {
	t.Helper()
	c := zone.RFC2136Config{Server: server, Policy: record.DefaultPolicy()}
	if keyFile != "" {
		key, err := zone.ReadKey(keyFile)
		if err != nil {
			t.Fatal(err)
		}
		c.Key = key
	}
	for _, f := range more {
		f(&c)
	}
	z, err := zone.NewRFC2136(c)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestRFC2136OnBIND(t *testing.T) {
	zonetest.Run(t, func(t *testing.T) zonetest.Subject {
		t.Helper()
		b := zonetest.StartBIND(t, zonetest.BINDOptions{})
		return zonetest.Subject{
			Zone:      at(t, b.Addr, b.KeyFile),
			WrongKey:  at(t, b.Addr, b.OtherFile),
			LoseReply: func() reconcile.Zone { return at(t, deaf(t, b.Addr), b.KeyFile) },
		}
	})
}

// deaf is a proxy that passes requests on, waits for the answer and closes the connection instead of
// passing it back.
func deaf(t *testing.T, server string) string {
	t.Helper()
	return between(t, server, func(client, up net.Conn) {
		go func() { _, _ = io.Copy(up, client) }()
		_, _ = io.ReadFull(up, make([]byte, 2)) // the server has answered
		_ = up.Close()
		_ = client.Close()
	})
}

// between is a proxy before a server, which has each connection served with one to the server.
func between(t *testing.T, server string, serve func(client, up net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", server)
			if err != nil {
				_ = c.Close()
				return
			}
			serve(c, up)
		}
	}()
	return l.Addr().String()
}

var (
	before = []record.Set{zonetest.Control("1"), zonetest.Masters("10.0.0.1")}
	after  = []record.Set{zonetest.Control("2"), zonetest.Masters("10.0.0.2")}
)

// Every refusal names its reason and the next step, and asks for no second try.
func TestRFC2136Refusals(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{Records: "etcd.demo IN CNAME elsewhere.example.\n"})
	key := func(f func(*zone.Key)) func(*zone.RFC2136Config) { return func(c *zone.RFC2136Config) { f(&c.Key) } }
	for _, tc := range []struct {
		name string
		z    *zone.RFC2136
		swap []string
		read []string
	}{
		{"no key", at(t, b.Addr, ""), []string{"REFUSED", "allow-update"}, []string{"REFUSED", "allow-transfer"}},
		{"a key without rights", at(t, b.Addr, b.OtherFile), []string{"REFUSED", `key "other."`}, []string{"REFUSED", `key "other."`}},
		{"an unknown key", at(t, b.Addr, b.KeyFile, key(func(k *zone.Key) { k.Name = "nobody." })),
			[]string{"BADKEY", "nobody."}, []string{"BADKEY", "nobody."}},
		{"another secret", at(t, b.Addr, b.KeyFile, key(func(k *zone.Key) { k.Secret = "d3Jvbmc=" })),
			[]string{"BADSIG", "hardtack.", "copy the server's key file"}, []string{"BADSIG", "hardtack."}},
		{"another zone", at(t, b.Addr, b.KeyFile, func(c *zone.RFC2136Config) { c.Policy.Suffix = "example." }),
			[]string{"NOTAUTH", "example.", "primary"}, []string{"NOTAUTH", "example.", "primary"}},
		{"no server", at(t, "127.0.0.1:1", b.KeyFile), []string{"127.0.0.1:1", "is the server running"}, []string{"127.0.0.1:1", "is the server running"}},
		{"a CNAME at one of our names", at(t, b.Addr, b.KeyFile), nil, []string{"etcd.demo.k8s.", "CNAME", "remove it"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tc.z.Read(t.Context(), zonetest.Cluster)
			says(t, err, tc.read)
			if tc.swap != nil {
				says(t, tc.z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before), tc.swap)
			}
		})
	}
}

func says(t *testing.T, err error, want []string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
	for _, retry := range []error{reconcile.ErrConflict, reconcile.ErrThrottled, reconcile.ErrUnknownOutcome} {
		if errors.Is(err, retry) {
			t.Errorf("the error asks for another try: %v", err)
		}
	}
}

// The server's own limit, where the configuration says that there is none: nothing of the update is kept.
func TestBINDRefusesTheRecordOverItsLimit(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{})
	z := at(t, b.Addr, b.KeyFile, func(c *zone.RFC2136Config) { c.SetValues = -1 })
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, before); err != nil {
		t.Fatal(err)
	}
	err := z.CompareAndSwap(t.Context(), zonetest.Cluster, before,
		[]record.Set{zonetest.Control("2"), zonetest.Masters(zonetest.Addresses(101)...)})
	says(t, err, []string{"SERVFAIL", "masters.demo.k8s. A with 101 records", "max-records-per-type"})
	got, err := z.Read(t.Context(), zonetest.Cluster)
	if err != nil || len(got) != 2 || !got[1].Equal(before[1]) {
		t.Errorf("the zone holds %v, %v", got, err)
	}
}

// An update never lands on a CNAME, which the server would pass over in silence.
func TestRFC2136CreatesNothingBesideACNAME(t *testing.T) {
	b := zonetest.StartBIND(t, zonetest.BINDOptions{Records: "masters.demo IN CNAME elsewhere.example.\n"})
	err := at(t, b.Addr, b.KeyFile).CompareAndSwap(t.Context(), zonetest.Cluster, nil, before)
	if !errors.Is(err, reconcile.ErrConflict) {
		t.Errorf("not a conflict: %v", err)
	}
}

func TestRFC2136ChecksWhatItSends(t *testing.T) {
	z := at(t, "127.0.0.1:1", "")
	for _, s := range []record.Set{
		{Name: "masters.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: []string{"2001:db8::1"}},
		{Name: "masters.demo.k8s.", Type: record.A, TTL: 5 * time.Second, Values: []string{"10.0.0"}},
		{Name: "masters.demo.k8s.", Type: record.A, TTL: 5 * time.Second},
		{Name: "masters.demo.k8s.", Type: record.A, TTL: 1500 * time.Millisecond, Values: []string{"10.0.0.1"}},
		{Name: "masters.demo.k8s.", Type: record.A, TTL: -time.Second, Values: []string{"10.0.0.1"}},
		{Name: "masters.demo.k8s.", Type: record.AAAA, TTL: 5 * time.Second, Values: []string{"2001:db8"}},
		{Name: "masters.demo.k8s.", Type: "MX", TTL: 5 * time.Second, Values: []string{"10 mail."}},
		{Name: "x.demo.k8s.", Type: record.SRV, TTL: 5 * time.Second, Values: []string{"0 0 66000 a."}},
		{Name: "x.demo.k8s.", Type: record.SRV, TTL: 5 * time.Second, Values: []string{"0 0 2380"}},
		{Name: "x.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second, Values: []string{strings.Repeat("x", 256)}},
	} {
		for _, sets := range [][2][]record.Set{{nil, {s}}, {{s}, nil}} {
			err := z.CompareAndSwap(t.Context(), zonetest.Cluster, sets[0], sets[1])
			says(t, err, []string{s.Name + " " + s.Type})
		}
	}
	if err := z.CompareAndSwap(t.Context(), zonetest.Cluster, nil, nil); err != nil {
		t.Errorf("nothing to change needs no server: %v", err)
	}
}

// A server that does not answer at all is left when the caller's time is over.
func TestRFC2136EndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	// Without the context an exchange would outlast the test.
	z := at(t, l.Addr().String(), "", func(c *zone.RFC2136Config) { c.Timeout = time.Hour })
	ctx, cancel := contextFor(t, 100*time.Millisecond)
	defer cancel()
	if err := z.CompareAndSwap(ctx, zonetest.Cluster, before, after); !errors.Is(err, reconcile.ErrUnknownOutcome) {
		t.Errorf("swap: %v", err)
	}
	if _, err := z.Read(ctx, zonetest.Cluster); err == nil {
		t.Error("read something")
	}
}
