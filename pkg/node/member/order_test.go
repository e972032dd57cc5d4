package member

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// ordersOfTests is a store with orders. The first creations of a record of a removal fail, and the orders are not to be read while
// it is silent.
type ordersOfTests struct {
	statusesOfTests
	mu     sync.Mutex // of all: whoever carries an order out works beside the loop
	fails  int
	silent error
}

func (o *ordersOfTests) Get(ctx context.Context, object string) ([]byte, error) {
	if strings.Contains(object, "/order-") && o.silent != nil {
		return nil, o.silent
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.statusesOfTests.Get(ctx, object)
}

func (o *ordersOfTests) Put(ctx context.Context, object string, content []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.statusesOfTests.Put(ctx, object, content)
}

func (o *ordersOfTests) Create(_ context.Context, object string, content []byte) error {
	if strings.HasSuffix(object, "/removed") && o.fails > 0 {
		o.fails--
		return errors.New("rate exceeded")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, ok := o.all[object]; ok {
		return pki.ErrExists
	}
	o.all[object] = content
	return nil
}

// answer is the answer to an order of epoch 2.
func (o *ordersOfTests) answer(t *testing.T, n int) etcd.Answer {
	t.Helper()
	data, err := o.Get(t.Context(), etcd.AnswerObject(2, n))
	if err != nil {
		t.Error(err)
		return etcd.Answer{Error: "none"}
	}
	answer, err := etcd.Parse[etcd.Answer](data)
	if err != nil {
		t.Error(err)
	}
	return answer
}

// clusterOfTests are members a, b and c, of which a leads. Each is asked at its own URL.
type clusterOfTests struct {
	members []etcd.Member
	removed func(etcd.ID) // is told before a member is removed
}

func (c *clusterOfTests) at(url string) Peer { return &memberOfTests{cluster: c, url: url} }

type memberOfTests struct {
	Peer
	cluster *clusterOfTests
	url     string
}

func (m *memberOfTests) Members(context.Context) (etcd.List, error) {
	return etcd.List{ClusterID: 9, Members: m.cluster.members}, nil
}

func (m *memberOfTests) Status(context.Context) (Status, error) {
	for _, member := range m.cluster.members {
		if clientURL(member.PeerURL) == m.url {
			return Status{ID: member.ID, ClusterID: 9, Leader: 1}, nil
		}
	}
	return Status{}, errors.New("connection refused")
}

func (*memberOfTests) Lock(context.Context, string, time.Duration) (Lease, error) { return 1, nil }
func (*memberOfTests) Renew(context.Context, Lease) error                         { return nil }
func (*memberOfTests) Unlock(context.Context, Lease) error                        { return nil }
func (*memberOfTests) Defragment(context.Context) error                           { return nil }

func (m *memberOfTests) Remove(_ context.Context, id etcd.ID) error {
	m.cluster.removed(id)
	m.cluster.members = m.cluster.members[:2]
	return nil
}

// newOrderBench is the loop of the leader's machine, and its store.
func newOrderBench(c *clusterOfTests) (*Member, *ordersOfTests) {
	for id, name := range []string{"a", "b", "c"} {
		c.members = append(c.members, etcd.Member{ID: etcd.ID(id + 1), Name: name, PeerURL: "https://" + name + ":2380", Started: true})
	}
	records := &ordersOfTests{statusesOfTests: statusesOfTests{all: map[string][]byte{}}}
	m := New(Config{Member: "a", Instance: "i-1", Own: "https://a:2379", Records: records, Clock: clock.System{}, Backups: &placeOfTests{}, Peer: c.at})
	m.written = &environment{clients: etcd.Open}
	return m, records
}

// TestRemoveNeedsTheRecord: a member is removed only once its place has the record of it, without which it would join again.
func TestRemoveNeedsTheRecord(t *testing.T) {
	for fails := range 3 {
		synctest.Test(t, func(t *testing.T) {
			c := &clusterOfTests{}
			m, records := newOrderBench(c)
			records.fails = fails
			c.removed = func(id etcd.ID) {
				if _, err := records.Get(t.Context(), etcd.RemovedObject("vol-c")); err != nil || id != 3 {
					t.Errorf("after %d failures member %s is removed without the record of it", fails, id)
				}
			}
			order := etcd.Order{At: time.Now(), Verb: etcd.AskRemove, Member: "c", ID: 3, Place: "vol-c"}
			u := &upkeep{Member: m, epoch: 2, number: 1, order: order, self: 1, peers: map[string]Peer{}}
			u.run(t.Context())
			if answer := records.answer(t, 1); answer.Error != "" || len(c.members) != 2 {
				t.Errorf("after %d failures the answer is %+v", fails, answer)
			}
		})
	}
}

// TestOrderThatCannotBeRead: an order that this version cannot read is answered with that, an answer that it cannot read is one, and
// neither keeps the leader's machine from the orders after it, from backups and from its status.
func TestOrderThatCannotBeRead(t *testing.T) {
	const readable = `{"format":1,"at":"2026-01-01T00:00:00Z","verb":"defrag"}`
	for name, tt := range map[string]struct {
		order, answer string
		want          string // of the error in the answer
	}{
		"a verb that is not known":    {order: `{"format":1,"at":"2026-01-01T00:00:00Z","verb":"move"}`, want: `knows no order "move"`},
		"a field that is not known":   {order: `{"format":1,"at":"2026-01-01T00:00:00Z","verb":"backup","of":"b"}`, want: "cannot read it"},
		"a newer format":              {order: `{"format":2,"at":"2026-01-01T00:00:00Z","verb":"backup"}`, want: "cannot read it"},
		"no record":                   {order: "{", want: "cannot read it"},
		"answered by a newer version": {order: `{"format":2}`, answer: `{"format":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &clusterOfTests{}
				m, records := newOrderBench(c)
				records.all[etcd.OrderObject(2, 1)] = []byte(tt.order)
				if tt.answer != "" {
					records.all[etcd.AnswerObject(2, 1)] = []byte(tt.answer)
				}
				records.all[etcd.OrderObject(2, 2)] = []byte(readable)
				formed := etcd.Facts{Store: etcd.Store{Epoch: 2, Outcome: &etcd.Outcome{Formed: &etcd.Formed{ClusterID: 9}}}}
				for range 20 {
					if err := m.watch(t.Context(), formed); err != nil {
						t.Error(err)
					}
					time.Sleep(m.Watch)
				}
				if tt.want != "" {
					if first := records.answer(t, 1); !strings.Contains(first.Error, tt.want) {
						t.Errorf("the answer is %+v", first)
					}
				}
				if second := records.answer(t, 2); second.Error != "" {
					t.Errorf("the answer to the next order is %+v", second)
				}
				if records.last.Backup == nil {
					t.Errorf("the status is %+v", records.last)
				}
			})
		})
	}
}

// TestOrdersDoNotAnswer: a store that does not say whether there is an order is no reason to take no backup and write no status.
func TestOrdersDoNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clusterOfTests{}
		m, records := newOrderBench(c)
		records.silent = errors.New("access denied")
		formed := etcd.Facts{Store: etcd.Store{Epoch: 2, Outcome: &etcd.Outcome{Formed: &etcd.Formed{ClusterID: 9}}}}
		for range 20 {
			if err := m.watch(t.Context(), formed); !errors.Is(err, records.silent) {
				t.Errorf("the look says %v", err)
			}
			time.Sleep(m.Watch)
		}
		if records.last.Backup == nil || time.Since(records.last.At) > 2*StatusEvery {
			t.Errorf("the status is %+v", records.last)
		}
	})
}
