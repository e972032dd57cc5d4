package operate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// Progress is how far the first start of an epoch is.
type Progress struct {
	Epoch int `json:"epoch"`
	// Outcome is formed, abandoned or, while members start for the first time, empty.
	Outcome string `json:"outcome"`
	// Started are the members that have the backup and start, Reported those that run by their own word.
	Started  []string `json:"started"`
	Reported []string `json:"reported"`
	// Members are all that start.
	Members []string `json:"members"`
}

// followEvery is the time between two looks: as the members' machines wait for each other.
const followEvery = 2 * time.Second

// Follow waits until the epoch that restores a backup is formed, or one that follows it after an abandoned start. told is
// called with every progress that differs from the one before.
func (c *Cluster) Follow(ctx context.Context, b Object, told func(Progress)) (Progress, error) {
	before := ""
	for {
		p, err := c.progress(ctx, b)
		if err != nil {
			return p, err
		}
		if text := fmt.Sprint(p); text != before {
			before = text
			told(p)
		}
		if p.Outcome == Formed {
			return p, nil
		}
		if err := c.Clock.Sleep(ctx, followEvery); err != nil {
			return p, fmt.Errorf("waiting until epoch %d is formed: %w; it goes on by itself: hardtack etcd status shows how far it is", p.Epoch, context.Cause(ctx))
		}
	}
}

func (c *Cluster) progress(ctx context.Context, b Object) (Progress, error) {
	all, err := c.epochs(ctx)
	if err != nil {
		return Progress{}, err
	}
	e := newest(all)
	p := Progress{Epoch: e.number, Started: []string{}, Reported: []string{}, Members: []string{}}
	if e.begin == nil || e.begin.Restore == nil || !same(e.begin.Restore, b) {
		return p, fmt.Errorf("epoch %d has begun, and not from %s: somebody else restores another backup", e.number, b.Name)
	}
	switch {
	case e.formed() != nil:
		p.Outcome = Formed
	case e.outcome != nil:
		p.Outcome = Abandoned
	}
	for _, m := range e.begin.Members {
		p.Members = append(p.Members, m.Name)
		started, err := read[etcd.Started](ctx, c.Records, etcd.StartedObject(e.number, m.Name))
		if err != nil {
			return p, err
		}
		if started != nil {
			p.Started = append(p.Started, m.Name)
		}
		status, err := read[etcd.Status](ctx, c.Records, etcd.StatusObject(m.Name))
		if err != nil {
			return p, err
		}
		if status != nil && status.Epoch == e.number {
			p.Reported = append(p.Reported, m.Name)
		}
	}
	slices.Sort(p.Members)
	return p, nil
}
