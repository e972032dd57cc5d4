package certs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// busy is a store that refuses a number of reads because of the rate. It keeps the names of each read.
type busy struct {
	store.Store
	refuse int
	// part is how many of the objects a refused read of several gives.
	part  int
	reads [][]string
	at    []time.Time
}

func (b *busy) read(objects ...string) error {
	b.reads, b.at = append(b.reads, objects), append(b.at, time.Now())
	if b.refuse--; b.refuse >= 0 {
		return fmt.Errorf("reading %s: %w", objects, pki.ErrBusy)
	}
	return nil
}

func (b *busy) Get(ctx context.Context, object string) ([]byte, error) {
	if err := b.read(object); err != nil {
		return nil, err
	}
	return b.Store.Get(ctx, object)
}

func (b *busy) GetAll(ctx context.Context, objects ...string) (map[string][]byte, error) {
	if err := b.read(objects...); err != nil {
		some, _ := b.Store.GetAll(ctx, objects[:min(b.part, len(objects))]...)
		return some, err
	}
	return b.Store.GetAll(ctx, objects...)
}

// TestMintReadsOnce: a master's keys are one request of the store, and what was read is not read again after a refusal.
func TestMintReadsOnce(t *testing.T) {
	b := newBench(t, role.Masters, role.Etcd)
	s := &busy{Store: b.store, refuse: 1, part: 10}
	_, err := certs.Mint(t.Context(), certs.MintOptions{Root: b.root, Roles: b.roles, Config: conf(), Store: s, Patience: time.Minute,
		Host: func() (certs.Host, error) { return b.host, nil }, Now: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.reads) != 2 || len(s.reads[0]) != 13 || len(s.reads[1]) != 3 {
		t.Errorf("%d reads: %q", len(s.reads), s.reads)
	}
	for _, object := range s.reads[1] {
		if !slices.Contains(s.reads[0][10:], object) {
			t.Errorf("%s was read twice", object)
		}
	}
}

// TestBusyStore compares how often machines ask a store that refuses for half an hour: minions ever more seldom, up to once in
// half a minute, and masters all the time.
func TestBusyStore(t *testing.T) {
	const long = 30 * time.Minute
	for r, want := range map[role.Role][2]int{role.Minions: {40, 120}, role.Masters: {800, 2000}} {
		b := newBench(t, r)
		synctest.Test(t, func(t *testing.T) {
			s := &busy{Store: b.store, refuse: 1 << 30}
			_, err := certs.Learn(t.Context(), certs.LearnOptions{Root: b.root, Roles: role.NewSet(r), Config: conf(), Store: s, Patience: long})
			if err == nil || len(s.reads) < want[0] || len(s.reads) > want[1] {
				t.Errorf("%s: %d reads, want %v; %v", r, len(s.reads), want, err)
			}
			var longest time.Duration
			for i := range s.at[1:] {
				longest = max(longest, s.at[i+1].Sub(s.at[i]))
			}
			if limit := map[role.Role]time.Duration{role.Minions: time.Minute, role.Masters: 3 * time.Second}[r]; longest > limit || longest < limit/2 {
				t.Errorf("%s: the longest pause is %v, want up to %v", r, longest, limit)
			}
		})
	}
}

// TestAhead: what a minion needs to join is one request, and each object is given out once.
func TestAhead(t *testing.T) {
	b := newBench(t, role.Minions)
	b.publish(t)
	for _, tt := range []struct {
		conf  config.Effective
		first int
	}{{conf(), 2}, {config.Effective{}, 3}} {
		s := &busy{Store: b.store, refuse: 1}
		a := certs.Ahead(s, tt.conf)
		if _, err := a.Get(t.Context(), pki.PublicInfo); err == nil {
			t.Error("the refusal is lost")
		}
		for range 2 {
			for _, object := range []string{pki.PublicInfo, pki.BootstrapToken} {
				got, err := a.Get(t.Context(), object)
				want, _ := b.store.Get(t.Context(), object)
				if err != nil || string(got) != string(want) {
					t.Errorf("%s: %q, %v", object, got, err)
				}
			}
		}
		if len(s.reads) != 4 || len(s.reads[1]) != tt.first || len(s.reads[2]) != 1 || len(s.reads[3]) != 1 {
			t.Errorf("reads: %q", s.reads)
		}
	}
}

// TestAheadWithoutToken asks again for what was not there.
func TestAheadWithoutToken(t *testing.T) {
	b := newBench(t, role.Minions)
	a := certs.Ahead(b.store, conf())
	if _, err := a.Get(t.Context(), pki.PublicInfo); err != nil {
		t.Fatal(err)
	}
	token := b.publish(t)
	data, err := a.Get(t.Context(), pki.BootstrapToken)
	if got, parseErr := pki.ParseToken(data); err != nil || parseErr != nil || got.ID != token.ID {
		t.Errorf("%q, %v", data, err)
	}
}
