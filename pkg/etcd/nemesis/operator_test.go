package nemesis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	document "github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

const zone = "eu-central-1a"

// account is the cloud as an operator's commands see it.
type account struct{ *world }

func (a account) Volumes(context.Context) ([]operate.Volume, error) {
	var list []operate.Volume
	for _, seat := range a.seats {
		for _, v := range a.volumesOf(seat) {
			claim := v.seen(nil)
			one := operate.Volume{ID: v.id, Member: seat, Zone: zone, State: "available", Holder: claim.Holder}
			if claim.Holder != "" {
				one.State, one.HolderState = "in-use", "running"
			}
			list = append(list, one)
		}
	}
	return list, nil
}

func (a account) Machines(context.Context) ([]operate.Machine, error) {
	a.mu.Lock()
	all := slices.Clone(a.machines)
	a.mu.Unlock()
	var list []operate.Machine
	for _, m := range all {
		m.mu.Lock()
		if !m.lost {
			list = append(list, operate.Machine{ID: m.id, Member: m.seat, Zone: zone, State: "running"})
		}
		m.mu.Unlock()
	}
	return list, nil
}

// Make makes one volume for one token, also when the first answer is asked for again after the volume was deleted: what EC2
// does then is not documented, and this is the harder reading.
func (a account) Make(_ context.Context, v operate.NewVolume) (string, error) {
	a.operator.Lock()
	defer a.operator.Unlock()
	if id, ok := a.made[v.Token]; ok {
		return id, nil
	}
	made, err := a.newVolume(v.Member)
	if err != nil {
		return "", err
	}
	a.made[v.Token] = made.id
	return made.id, nil
}

// Release is what only a move to another zone asks for, and all seats of a schedule are in one.
func (a account) Release(context.Context, string) error {
	return errors.New("no operator of a schedule moves a member")
}

// rightly is the right time.
type rightly struct{ w *world }

func (c rightly) Now() time.Time { return c.w.now() }

func (c rightly) Sleep(ctx context.Context, d time.Duration) error { return sleep(ctx, d/pace) }

// operator has the commands of a person who knows the cluster.
func (s *schedule) operator() *operate.Cluster {
	c := &operate.Cluster{Name: clusterName, Members: slices.Clone(s.seats), Storage: document.StorageVolume, Peers: peers(s.seats), Records: s.store, Cloud: account{s.world}, Clock: rightly{s.world}}
	if place, err := s.place(); err == nil {
		c.Backups = shelf{place}
	}
	return c
}

// replace is the operator who gives a seat a new volume, and is not sure whether the command was given: it comes up to
// three times, from two consoles.
func (s *schedule) replace(seat string) {
	c := s.operator()
	var group sync.WaitGroup
	for range 1 + s.rng.IntN(3) {
		ask := func() {
			if done, err := c.Replace(s.ctx, operate.NewVolume{Member: seat}, false); err != nil {
				s.logf("hardtack etcd replace %s: %v", seat, err)
			} else {
				s.logf("hardtack etcd replace %s: %s, made %t", seat, done.Volume, done.Made)
			}
		}
		if s.rng.IntN(2) == 0 {
			ask()
			continue
		}
		group.Go(ask)
	}
	group.Wait()
	if n := len(s.volumesOf(seat)); n > 1 {
		s.breach("%d volumes are made for %s, of which its machine takes none", n, seat)
	}
}
