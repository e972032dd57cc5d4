package main

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
)

// fakeServer is an API server that is ready from a time on.
type fakeServer struct {
	ready time.Time
	did   []string
}

func (s *fakeServer) Ready(context.Context) error {
	if time.Now().Before(s.ready) {
		return errors.New("etcd failed: reason withheld")
	}
	return nil
}

func (s *fakeServer) Alone(ctx context.Context, l kube.Lease, do func(context.Context) error) error {
	s.did = append(s.did, "takes "+l.Name)
	err := do(ctx)
	s.did = append(s.did, "gives")
	return err
}

// An API server that misses its member of etcd for a moment, since that was started again just before, is one that works: another
// master's may be away at this time. One that stays broken waits for nobody.
func TestAloneAt(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration
		want  []string
	}{
		"ready":           {0, []string{"takes hardtack-restart", "restart", "gives"}},
		"ready after 20s": {20 * time.Second, []string{"takes hardtack-restart", "restart", "gives"}},
		"broken":          {time.Hour, []string{"restart"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s := &fakeServer{ready: began.Add(c.after)}
				err := aloneAt(t.Context(), s, "a", func(context.Context) error {
					s.did = append(s.did, "restart")
					s.ready = s.ready.Add(time.Minute)
					return nil
				})
				if err != nil || !slices.Equal(s.did, c.want) {
					t.Errorf("%v: it %q, want %q", err, s.did, c.want)
				}
				if took := time.Since(began); c.after < time.Hour && took < c.after+time.Minute {
					t.Errorf("it gave the lease back after %v: the API server was not ready", took)
				}
			})
		})
	}
}
