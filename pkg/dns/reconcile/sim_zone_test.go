package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// route53Limits are Route 53's.
var route53Limits = record.Limits{SetValues: 400, BatchValues: 1000, BatchCharacters: 32000}

type setKey struct{ name, kind string }

// zone is a strict model of one hosted zone's batch contract: a batch is all or nothing, a removal
// must match values and TTL exactly, a creation needs that nothing is there, sets are never empty.
type zone struct {
	sets map[setKey]record.Set
}

func newZone() *zone { return &zone{sets: map[setKey]record.Set{}} }

func (z *zone) list() []record.Set {
	out := slices.Collect(maps.Values(z.sets))
	slices.SortFunc(out, func(a, b record.Set) int {
		return strings.Compare(a.Name+" "+a.Type, b.Name+" "+b.Type)
	})
	for i := range out {
		out[i].Values = slices.Clone(out[i].Values)
	}
	return out
}

// errRefused is a batch that no retry makes right.
var errRefused = errors.New("the batch breaks the service's rules")

// swap applies one batch whole or not at all.
func (z *zone) swap(remove, create []record.Set) error {
	if err := legal(remove, create); err != nil {
		return err
	}
	next := maps.Clone(z.sets)
	for _, s := range remove {
		k := setKey{s.Name, s.Type}
		old, ok := next[k]
		if !ok || old.TTL != s.TTL || !slices.Equal(sorted(old.Values), sorted(s.Values)) {
			return fmt.Errorf("tried to delete %s %s as it is not: %w", s.Name, s.Type, reconcile.ErrConflict)
		}
		delete(next, k)
	}
	for _, s := range create {
		k := setKey{s.Name, s.Type}
		if _, ok := next[k]; ok {
			return fmt.Errorf("tried to create %s %s, which is there: %w", s.Name, s.Type, reconcile.ErrConflict)
		}
		next[k] = record.Set{Name: s.Name, Type: s.Type, TTL: s.TTL, Values: slices.Clone(s.Values)}
	}
	z.sets = next
	return nil
}

// legal holds the limits of a set and of a batch.
func legal(remove, create []record.Set) error {
	values, characters := 0, 0
	for _, s := range slices.Concat(remove, create) {
		if len(s.Values) == 0 || len(s.Values) > route53Limits.SetValues || s.TTL < 0 || s.TTL%time.Second != 0 {
			return fmt.Errorf("%s %s has %d values and TTL %s: %w", s.Name, s.Type, len(s.Values), s.TTL, errRefused)
		}
		if d := slices.Compact(sorted(s.Values)); len(d) != len(s.Values) {
			return fmt.Errorf("%s %s has a value twice: %w", s.Name, s.Type, errRefused)
		}
		values += len(s.Values)
		for _, v := range s.Values {
			characters += len(v)
		}
	}
	if values > route53Limits.BatchValues || characters > route53Limits.BatchCharacters || values == 0 {
		return fmt.Errorf("a batch of %d values and %d characters: %w", values, characters, errRefused)
	}
	return nil
}

func sorted(values []string) []string { return slices.Sorted(slices.Values(values)) }

// faults are the probabilities of a schedule.
type faults struct {
	throttle, lost, late, fail, kill float64
	// stale is how old a reading of the fleet may be.
	stale time.Duration
}

// simZone is the zone as one process reaches it: slow, throttled, and losing replies.
type simZone struct {
	*sim
	p *invocation
}

func (z simZone) Limits() record.Limits { return route53Limits }

func (z simZone) Read(ctx context.Context, _ string) ([]record.Set, error) {
	z.p.pause(z.latency())
	if err := z.trouble(ctx, z.p); err != nil {
		z.logf("%s reads the zone: %v", z.p.name, err)
		return nil, err
	}
	out := z.zone.list()
	z.p.looked = z.now
	z.logf("%s reads the zone", z.p.name)
	z.p.pause(z.latency())
	return out, z.p.expired(ctx)
}

func (z simZone) CompareAndSwap(ctx context.Context, _ string, remove, create []record.Set) error {
	member := z.p.member
	z.p.pause(z.latency())
	if err := z.trouble(ctx, z.p); err != nil {
		return err
	}
	switch {
	case z.chance(z.f.lost): // the request never arrives
		z.p.pause(z.latency())
		return fmt.Errorf("reading the reply: %w", reconcile.ErrUnknownOutcome)
	case z.chance(z.f.late): // it arrives when nobody waits any more
		z.after(z.latency(), func() { z.logf("%s late: %v", z.p.name, z.commit(z.p, member, remove, create)) })
		return fmt.Errorf("reading the reply: %w", reconcile.ErrUnknownOutcome)
	}
	err := z.commit(z.p, member, remove, create)
	z.logf("%s swaps: %v", z.p.name, err)
	z.p.pause(z.latency())
	if z.p.expired(ctx) != nil || err == nil && z.chance(z.f.lost) {
		return fmt.Errorf("reading the reply: %w", reconcile.ErrUnknownOutcome)
	}
	return err
}

// trouble is what may befall any call before it has an effect.
func (s *sim) trouble(ctx context.Context, p *invocation) error {
	if s.chance(s.f.kill) {
		s.logf("%s is killed", p.name)
		s.stats.killed++
		panic(errKilled{})
	}
	if err := p.expired(ctx); err != nil {
		return err
	}
	if s.chance(s.f.throttle) {
		return fmt.Errorf("Rate exceeded: %w", reconcile.ErrThrottled)
	}
	if s.chance(s.f.fail) {
		return errors.New("the service answers with an internal error")
	}
	return nil
}
