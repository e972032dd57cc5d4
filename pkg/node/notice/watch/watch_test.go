package watch_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice/watch"
)

// instance is an instance with a metadata service, and its node.
type instance struct {
	*testing.T
	spot    bool
	service *metadata.Service
	// broken is the status of every answer about a path that ends in it.
	broken string
	asked  []string
	now    time.Time
	node   node
	log    bytes.Buffer
	*watch.Watcher
}

const id = "i-0123456789abcdef0"

func (i *instance) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: id, Spot: i.spot}, true
}

func (i *instance) Credentials(context.Context, string, string) (metadata.Credentials, error) {
	return metadata.Credentials{}, errors.New("no role")
}

// node is a node, whose API fails while fails is set.
type node struct {
	fails                  error
	asked                  int
	reason, shown, written string
}

func (n *node) Ending(context.Context) (string, error) {
	n.asked++
	return n.shown, n.fails
}

func (n *node) SetEnding(_ context.Context, reason, message string) error {
	if n.fails == nil {
		n.reason, n.shown, n.written = reason, message, n.written+reason+"; "
	}
	return n.fails
}

func newInstance(t *testing.T, spot bool) *instance {
	t.Helper()
	i := &instance{T: t, spot: spot, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	i.service = metadata.New(i, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked = append(i.asked, r.URL.Path)
		if i.broken != "" && strings.HasSuffix(r.URL.Path, i.broken) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		i.service.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := imds.New(imds.Options{Endpoint: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	i.Watcher = &watch.Watcher{Metadata: client, Node: &i.node, Now: func() time.Time { return i.now }, Log: slog.New(slog.NewTextHandler(&i.log, nil))}
	return i
}

// steps takes steps for so long, one every 5 seconds.
func (i *instance) steps(d time.Duration) {
	i.Helper()
	for end := i.now.Add(d); i.now.Before(end); i.now = i.now.Add(5 * time.Second) {
		i.Step(i.Context())
	}
}

func (i *instance) want(reason, message string) {
	i.Helper()
	if i.node.shown != message || i.node.reason != reason {
		i.Fatalf("the node shows %s %q, want %s %q\n%s", i.node.reason, i.node.shown, reason, message, &i.log)
	}
}

func (i *instance) questions(suffix string) (n int) {
	for _, path := range i.asked {
		if strings.HasSuffix(path, suffix) {
			n++
		}
	}
	return n
}

const interrupted = "spot terminate at 2026-03-01T12:02:00Z"

func TestSpot(t *testing.T) {
	i := newInstance(t, true)
	i.steps(time.Minute)
	i.want("", "")
	if i.node.asked != 1 {
		t.Errorf("the node was asked for %d times", i.node.asked)
	}
	recommended := metadata.Notices{Rebalance: i.now.Add(-time.Second)}
	i.service.SetNotices(id, recommended)
	i.steps(5 * time.Second)
	i.want("RebalanceRecommendation", "rebalance recommendation at 2026-03-01T12:00:59Z")
	both := recommended
	both.Interruption = &metadata.Interruption{Action: "terminate", Time: i.now.Add(55 * time.Second)}
	i.service.SetNotices(id, both)
	i.steps(5 * time.Second)
	i.want("SpotInterruption", interrupted+"; rebalance recommendation at 2026-03-01T12:00:59Z")
	i.node.shown = "" // it is made anew
	i.steps(time.Minute + 5*time.Second)
	i.want("SpotInterruption", interrupted+"; rebalance recommendation at 2026-03-01T12:00:59Z")
	if n := i.questions("spot/instance-action"); n != 27 {
		t.Errorf("%d questions in 135 seconds", n)
	}
}

// TestScheduled has an instance that nobody can take back: it is not asked about that, and about events once a minute.
func TestScheduled(t *testing.T) {
	i := newInstance(t, false)
	at := time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)
	i.service.SetNotices(id, metadata.Notices{Interruption: &metadata.Interruption{Action: "stop", Time: at}, Rebalance: at,
		Scheduled: []metadata.Event{{Code: "system-reboot", NotBefore: at}, {Code: "instance-stop", NotBefore: at.Add(-time.Hour), State: "canceled"}}})
	i.steps(5 * time.Minute)
	i.want("ScheduledEvent", "scheduled system-reboot at 2026-03-07T09:00:00Z")
	if n, none := i.questions("events/maintenance/scheduled"), i.questions("spot/instance-action"); n != 5 || none != 0 {
		t.Errorf("%d and %d questions", n, none)
	}
	i.service.SetNotices(id, metadata.Notices{Scheduled: []metadata.Event{{Code: "system-reboot", NotBefore: at, State: "completed"}}})
	i.steps(time.Minute)
	i.want("NoNotice", "")
}

// TestLeftOver has a node that still shows what there was before a reboot.
func TestLeftOver(t *testing.T) {
	i := newInstance(t, false)
	i.node.shown = "scheduled system-reboot at 2026-03-01T11:55:00Z"
	i.steps(5 * time.Second)
	i.want("NoNotice", "")
}

// TestSilence has a metadata service that stops answering: no notice is taken back, and none is hidden by another.
func TestSilence(t *testing.T) {
	i := newInstance(t, true)
	i.service.SetNotices(id, metadata.Notices{Interruption: &metadata.Interruption{Action: "terminate", Time: time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)}})
	i.steps(5 * time.Second)
	i.broken = "instance-action"
	i.service.SetNotices(id, metadata.Notices{Scheduled: []metadata.Event{{Code: "system-reboot", NotBefore: time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)}}})
	i.steps(2 * time.Minute)
	i.want("SpotInterruption", interrupted+"; scheduled system-reboot at 2026-03-07T09:00:00Z")
	if n := strings.Count(i.log.String(), "could not be passed on"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &i.log)
	}
	i.broken = ""
	i.steps(5 * time.Second)
	i.want("ScheduledEvent", "scheduled system-reboot at 2026-03-07T09:00:00Z")
}

// TestNoAPI has an API server that does not answer: the notice is there when it does.
func TestNoAPI(t *testing.T) {
	i := newInstance(t, true)
	i.node.fails = errors.New("connection refused")
	i.steps(30 * time.Second)
	i.service.SetNotices(id, metadata.Notices{Interruption: &metadata.Interruption{Action: "terminate", Time: time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC)}})
	i.steps(30 * time.Second)
	i.want("", "")
	i.node.fails = nil
	i.steps(5 * time.Second)
	i.want("SpotInterruption", interrupted)
}

// TestSilenceAtStart has a watcher that is started again while the metadata service does not answer: what the node shows still holds.
func TestSilenceAtStart(t *testing.T) {
	i := newInstance(t, true)
	i.node.reason, i.node.shown = "SpotInterruption", interrupted
	i.broken = "instance-life-cycle"
	i.steps(10 * time.Second)
	i.want("SpotInterruption", interrupted)
	i.broken = ""
	i.steps(5 * time.Second)
	i.want("NoNotice", "")
}
