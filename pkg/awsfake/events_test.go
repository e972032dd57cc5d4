package awsfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of events")

// TestEventShapes compares one event of each kind with its golden file. The shapes are those of the EC2
// Auto Scaling User Guide: ec2-auto-scaling-event-reference.html (launch, terminate, lifecycle actions),
// and instance-refresh-eventbridge-events.html.
func TestEventShapes(t *testing.T) {
	b := newBench(t, Options{AutoScaling: AutoScalingOptions{Step: step, Refuse: func(action, group string) error {
		if group == "full" && action == "launch" || group == "stuck" && action == "terminate" {
			return errors.New("there is no capacity")
		}
		return nil
	}}})
	s := b.account.AutoScaling()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.masters(t, "hooked", 0)
	b.hook(t, "hooked", "up", transitionLaunching, 60, Continue)
	b.hook(t, "hooked", "down", transitionTerminating, 60, Continue)
	check(s.SetDesired("hooked", 1))
	b.settleFor(2 * time.Minute)
	check(s.SetDesired("hooked", 0))
	b.settleFor(5 * time.Minute) // and back
	b.masters(t, "full", 1)
	b.masters(t, "stuck", 1)
	b.settleFor(2 * step)
	check(s.SetDesired("stuck", 0))
	b.masters(t, "plain", 2)
	b.settleFor(2 * step)
	refresh := func(lowest int) {
		t.Helper()
		var err error
		b.account.locked(func() { _, err = s.startRefresh("plain", refreshPreferences{MinHealthy: &lowest}, nil) })
		check(err)
	}
	refresh(0)
	b.settleFor(time.Minute)
	refresh(100)
	b.account.locked(func() { _, err := s.cancelRefresh("plain"); check(err) })
	b.settleFor(time.Minute)
	compareEvents(t, b.account.Events().Sent())
}

// compareEvents compares the first event of each detail-type, origin and destination with its golden file.
func compareEvents(t *testing.T, sent []Event) {
	t.Helper()
	seen := map[string]bool{}
	for _, e := range sent {
		var way route
		if err := json.Unmarshal(e.Detail, &way); err != nil {
			t.Fatal(err)
		}
		name := strings.ToLower(strings.ReplaceAll(strings.Join([]string{e.DetailType, way.Origin, way.Destination}, " "), " ", "-"))
		if name = strings.Trim(name, "-") + ".json"; !seen[name] {
			seen[name] = true
			golden(t, name, e)
		}
	}
	files, err := filepath.Glob("testdata/events/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !seen[filepath.Base(file)] {
			t.Errorf("nothing like %s was emitted", file)
		}
	}
}

// settleFor lets time pass in small steps, so that each consequence happens at its time.
func (b *bench) settleFor(d time.Duration) {
	for range d / step {
		b.pass(step)
	}
}

func golden(t *testing.T, name string, e Event) {
	t.Helper()
	got, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "events", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v):\n%s\nwant\n%s", name, err, got, want)
	}
}

func TestDelivery(t *testing.T) {
	b := newBench(t, Options{})
	url, err := b.account.SQS().CreateQueue("pokes", nil)
	if err != nil {
		t.Fatal(err)
	}
	b.account.Events().ToQueue(url, func(e Event) bool { return e.DetailType == EventLaunch })
	b.masters(t, "m", 3)
	b.pass(0)
	var arrived, want []string
	for _, e := range b.account.Events().Sent() {
		want = append(want, e.ID)
	}
	for _, m := range b.account.SQS().Messages(url) {
		var e Event
		if err := json.Unmarshal([]byte(m.Body), &e); err != nil {
			t.Fatal(err)
		}
		arrived = append(arrived, e.ID)
	}
	if len(want) != 3 || !slices.Equal(arrived, want) {
		t.Errorf("the queue has %q, want %q", arrived, want)
	}
}

func TestAgendaKeepsOrder(t *testing.T) {
	b := newBench(t, Options{})
	var got []string
	plan := func(d time.Duration, name string) {
		b.account.regional.agenda.after(d, func() { got = append(got, name+b.account.regional.agenda.now.Format("@05")) })
	}
	b.account.locked(func() {
		plan(3*time.Second, "c")
		plan(time.Second, "a")
		plan(time.Second, "b")
	})
	if next, ok := b.account.Next(); !ok || !next.Equal(b.clock.Now().Add(time.Second)) {
		t.Errorf("next is %v, %v", next, ok)
	}
	b.pass(time.Hour)
	if want := []string{"a@06", "b@06", "c@08"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
