package certs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestNoteLost: the kubelet is started again only where the API server says twice that it has no such node, and where the kubelet had
// the time to make it.
func TestNoteLost(t *testing.T) {
	const yes, no, silent = "yes", "no", "silent"
	for name, tt := range map[string]struct {
		runs    time.Duration
		answers []string
		lost    bool
		err     string
	}{
		"there":                     {time.Hour, []string{yes}, false, ""},
		"lost":                      {time.Hour, []string{no, no}, true, ""},
		"an answer by mistake":      {time.Hour, []string{no, yes}, false, ""},
		"no API server":             {time.Hour, []string{silent}, false, "connection refused"},
		"no API server any more":    {time.Hour, []string{no, silent}, false, "connection refused"},
		"a kubelet that has begun":  {9 * time.Minute, nil, false, ""},
		"a kubelet that has had it": {10 * time.Minute, []string{no, no}, true, ""},
		"a kubelet that is down":    {0, nil, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			b.write(t, pki.Bundle{Dir: pki.DirKubelet}.Path("kubeconfig"), nil)
			asked, slept := 0, time.Duration(0)
			lost, err := certs.NoteLost(t.Context(), certs.LostOptions{
				Root:    b.root,
				Running: func(context.Context) (time.Duration, error) { return tt.runs, nil },
				Exists: func(context.Context) (bool, error) {
					answer := append(tt.answers, silent)[asked]
					asked++
					if answer == silent {
						return false, errors.New("connection refused")
					}
					return answer == yes, nil
				},
				Sleep: func(_ context.Context, d time.Duration) error { slept += d; return nil },
			})
			if lost != tt.lost || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("lost %v, %v, want %v, %q", lost, err, tt.lost, tt.err)
			}
			if asked != len(tt.answers) || asked > 1 && slept < 10*time.Second {
				t.Errorf("asked %d times, after %v", asked, slept)
			}
			if got := slices.Contains(certs.PendingRestarts(b.root), pki.DirKubelet); got != tt.lost {
				t.Errorf("it is to be started again: %v, want %v", got, tt.lost)
			}
		})
	}
}
