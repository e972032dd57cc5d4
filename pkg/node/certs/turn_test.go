package certs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// TestOneProcessJoins: a clock that is set right starts hardtack-renew.service while hardtack-bootstrap.service waits for the masters' decision.
func TestOneProcessJoins(t *testing.T) {
	b := newBench(t)
	b.publish(t)
	m := &masters{}
	waits, decide := make(chan struct{}), make(chan struct{})
	boot := b.options(m, certs.Forever)
	boot.Join = func(_ string, _ []byte, token string) (certs.Joiner, error) {
		return slow{joiner{m, token}, waits, decide}, nil
	}
	type result struct {
		got certs.Bootstrapped
		err error
	}
	first, later := make(chan result, 1), make(chan result, 1)
	run := func(to chan result, o certs.BootstrapOptions) {
		got, err := certs.Bootstrap(t.Context(), o)
		to <- result{got, err}
	}
	go run(first, boot)
	<-waits
	renew := b.options(&masters{}, time.Millisecond)
	if _, err := certs.Bootstrap(t.Context(), renew); reason.Of(err) != reason.Identity || !strings.Contains(err.Error(), "another process") {
		t.Errorf("beside one that waits: %v", err)
	}
	renew.Patience = certs.Forever
	go run(later, renew)
	close(decide)
	if r := <-first; r.err != nil || !r.got.Joined {
		t.Errorf("%+v, %v", r.got, r.err)
	}
	if r := <-later; r.err != nil || r.got.Joined {
		t.Errorf("the second asked for itself: %+v, %v", r.got, r.err)
	}
	if len(m.asked) != 1 {
		t.Errorf("%d requests, want 1", len(m.asked))
	}
}

// slow are masters that decide later.
type slow struct {
	joiner
	waits, decide chan struct{}
}

func (s slow) Answer(ctx context.Context, name string) (certs.JoinAnswer, error) {
	close(s.waits)
	<-s.decide
	return s.joiner.Answer(ctx, name)
}
