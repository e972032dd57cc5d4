package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// members reads what the members of etcd report to the cluster's store.
type members struct {
	store *store.SSM
	clock clock.Clock
	// epoch is the newest that was found: there is never an older one again.
	epoch int
}

var _ autoscaling.Members = (*members)(nil)

// members makes no request. It returns nil if the cluster's store is not in AWS.
func (c *Cluster) members() (*members, error) {
	at, err := store.ParseLocation(c.config.Document.Cluster.Store)
	if err != nil || at.Kind != store.KindSSM {
		return nil, err
	}
	return &members{clock: c.clock, store: store.NewSSM(at.Root, func(context.Context) (aws.Config, error) { return c.config.AWS, nil })}, nil
}

// Reports reads the current epoch and the report of each member.
func (m *members) Reports(ctx context.Context, names []string) (rollout.Reports, error) {
	out := rollout.Reports{Members: map[string]etcd.Status{}}
	err := m.read(ctx, names, &out)
	if errors.Is(err, pki.ErrForbidden) {
		return rollout.Reports{Unread: err.Error()}, nil
	}
	return out, err
}

func (m *members) read(ctx context.Context, names []string, out *rollout.Reports) error {
	for {
		_, err := m.store.Get(ctx, etcd.BeginObject(m.epoch+1))
		if errors.Is(err, pki.ErrNotFound) {
			break
		}
		if err != nil {
			return fmt.Errorf("reading etcd's current epoch: %w", err)
		}
		m.epoch++
	}
	out.Epoch = m.epoch
	for _, name := range names {
		text, err := m.store.Get(ctx, etcd.StatusObject(name))
		if errors.Is(err, pki.ErrNotFound) {
			continue
		}
		if err == nil {
			out.Members[name], err = etcd.Parse[etcd.Status](text)
		}
		if err != nil {
			return fmt.Errorf("reading what etcd's member %s reports: %w", name, err)
		}
	}
	out.At = m.now()
	return nil
}

// now is the time by the store's clock, which the machines' agree with; this computer's may be wrong.
func (m *members) now() time.Time {
	return m.clock.Now().Add(m.store.Skew())
}
