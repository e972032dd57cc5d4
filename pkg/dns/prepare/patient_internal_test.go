package prepare

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// TestPatiently repeats only what a busy service refused, and not for ever.
func TestPatiently(t *testing.T) {
	throttled := fmt.Errorf("reading: %w", reconcile.ErrThrottled)
	other := errors.New("no permission")
	for name, tt := range map[string]struct {
		answers []error // the last one is repeated
		want    error
		calls   int // 0 is any number above one
	}{
		"at once":             {[]error{nil}, nil, 1},
		"after two refusals":  {[]error{throttled, throttled, nil}, nil, 3},
		"refused, then wrong": {[]error{throttled, other}, other, 2},
		"wrong":               {[]error{other, nil}, other, 1},
		"refused for ever":    {[]error{throttled}, reconcile.ErrThrottled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls, began := 0, time.Now()
				_, err := patiently(context.Background(), func() (int, error) {
					calls++
					return calls, tt.answers[min(calls, len(tt.answers))-1]
				})
				if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				if tt.calls > 0 && calls != tt.calls || tt.calls == 0 && calls < 5 {
					t.Errorf("%d calls, want %d", calls, tt.calls)
				}
				if waited := time.Since(began); waited > wholePatience+longestPatience {
					t.Errorf("it has waited for %s", waited)
				}
			})
		})
	}
}
