package member

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// ordersOfTests is a store with orders. The first creations of a record of a removal fail.
type ordersOfTests struct {
	statusesOfTests
	fails int
}

func (o *ordersOfTests) Create(_ context.Context, object string, content []byte) error {
	if strings.HasSuffix(object, "/removed") && o.fails > 0 {
		o.fails--
		return errors.New("rate exceeded")
	}
	if _, ok := o.all[object]; ok {
		return pki.ErrExists
	}
	o.all[object] = content
	return nil
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
			answer, err := etcd.Parse[etcd.Answer](records.all[etcd.AnswerObject(2, 1)])
			if err != nil || answer.Error != "" || len(c.members) != 2 {
				t.Errorf("after %d failures the answer is %+v, %v", fails, answer, err)
			}
		})
	}
}
