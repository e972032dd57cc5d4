package member_test

import (
	"context"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
)

// aloneAt is where the member is that has no name for others.
var aloneAt = fmt.Sprintf("127.77.%d.250", os.Getpid()%250+1)

// writer writes one key after another, and knows which were acknowledged.
type writer struct {
	stop chan struct{}
	done chan struct{}
	keys []string
}

func (b *bench) write(hosts ...string) *writer {
	w := &writer{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for i := 0; ; i++ {
			select {
			case <-w.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			key, host := fmt.Sprintf("key-%06d", i), hosts[i%len(hosts)]
			body := map[string]string{"key": coded(key), "value": coded("v")}
			ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
			if post(ctx, fmt.Sprintf("http://%s:2379/v3/kv/put", host), body, nil) == nil {
				w.keys = append(w.keys, key)
			}
			cancel()
		}
	}()
	return w
}

// end ends the writer and returns what was acknowledged.
func (w *writer) end() []string {
	close(w.stop)
	<-w.done
	return w.keys
}

// has fails unless a linearizable read of a member finds all keys.
func (b *bench) has(at string, keys []string) error {
	var out struct{ Kvs []struct{ Key []byte } }
	body := map[string]any{"key": coded("key-"), "range_end": coded("key."), "keys_only": true}
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	defer cancel()
	if err := post(ctx, b.seat(at).ClientURL()+"/v3/kv/range", body, &out); err != nil {
		return err
	}
	found := map[string]bool{}
	for _, kv := range out.Kvs {
		found[string(kv.Key)] = true
	}
	for _, key := range keys {
		if !found[key] {
			return fmt.Errorf("%s has lost %s, which was acknowledged", at, key)
		}
	}
	return nil
}

// TestGrow makes three members of one that had no name for others to reach it by, while a client writes. Its next machine has
// its data, and offers it at its name; the others join one after another. What was acknowledged is there in the end, in the same
// cluster, which bears the loss of any one: also of the first, with its data.
func TestGrow(t *testing.T) {
	b := &bench{T: t, dir: t.TempDir(), store: &memory{objects: map[string][]byte{}}, seats: map[string]*seat{}}
	b.bin = etcdtest.Programs(t, b.dir)
	b.reached = func(from, url string) string {
		if u, err := neturl.Parse(url); err != nil || u.Hostname() == aloneAt && from != "a" {
			return "http://192.0.2.1" // is at the machine's own loopback only
		}
		return url
	}
	a := b.seat("a")
	named := a.Address
	a.Address = aloneAt
	b.store.objects[etcd.BeginObject(1)] = etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: []etcd.Peer{{Name: "a", URL: a.PeerURL()}}})
	end := b.boot("a", "i-1", nil)
	within(t, func() error { return b.voters("a", 1) })
	before, err := a.client().Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := b.write(aloneAt, named)
	time.Sleep(time.Second)

	peers := []string{"http://" + named + ":2380", b.seat("b").PeerURL(), b.seat("c").PeerURL()}
	b.boot("b", "i-b", peers)
	b.boot("c", "i-c", peers)
	time.Sleep(time.Second) // they wait for a member that answers at its name
	if err := b.voters("a", 1); err != nil {
		t.Errorf("before its machine is replaced: %v", err)
	}
	end()
	a.Address = named
	end = b.boot("a", "i-2", peers)
	within(t, func() error { return b.voters("a", 3) })

	after, err := a.client().Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(after.Members, func(m etcd.Member) bool { return m.Name == "a" })
	if after.ClusterID != before.ClusterID || after.Members[i].ID != before.Members[0].ID || after.Members[i].PeerURL != a.PeerURL() {
		t.Errorf("%+v, and before %+v", after, before)
	}
	end()
	if err := os.RemoveAll(filepath.Join(b.dir, "of-a")); err != nil {
		t.Fatal(err)
	}
	within(t, func() error { return b.put("b", "without the first", 1) })
	b.boot("a", "i-3", peers)
	within(t, func() error { return b.voters("b", 3) })
	keys := client.end()
	t.Logf("%d writes were acknowledged", len(keys))
	if len(keys) < 100 {
		t.Errorf("only %d writes were acknowledged", len(keys))
	}
	for _, m := range []string{"a", "b", "c"} {
		within(t, func() error { return b.has(m, keys) })
	}
}
