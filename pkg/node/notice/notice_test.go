package notice_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
)

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-03-01T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

// The contents are the examples of EC2's user guide.
func TestRead(t *testing.T) {
	spot, err := notice.ReadSpot([]byte(`{"action": "terminate", "time": "2017-09-18T08:22:00Z"}`))
	if err != nil || spot.String() != "spot terminate at 2017-09-18T08:22:00Z" {
		t.Errorf("%v, %v", spot, err)
	}
	rebalance, err := notice.ReadRebalance([]byte(`{"noticeTime": "2020-10-26T15:59:30Z"}`))
	if err != nil || rebalance.String() != "rebalance recommendation at 2020-10-26T15:59:30Z" {
		t.Errorf("%v, %v", rebalance, err)
	}
	scheduled, err := notice.ReadScheduled([]byte(`[
		{"NotBefore": "21 Jan 2019 09:00:43 GMT", "Code": "system-reboot", "Description": "scheduled reboot", "EventId": "instance-event-0d59937288b749b32", "NotAfter": "21 Jan 2019 09:17:23 GMT", "State": "active"},
		{"NotBefore": "2 Jan 2019 09:00:43 GMT", "Code": "instance-stop", "Description": "", "EventId": "instance-event-1", "State": "active"},
		{"NotBefore": "1 Jan 2019 09:00:43 GMT", "Code": "instance-reboot", "Description": "[Completed] reboot", "EventId": "instance-event-2", "State": "completed"},
		{"NotBefore": "1 Jan 2019 09:00:43 GMT", "Code": "instance-reboot", "Description": "[Canceled] reboot", "EventId": "instance-event-3", "State": "canceled"}]`))
	if got := notice.Format(scheduled); err != nil || got != "scheduled instance-stop at 2019-01-02T09:00:43Z; scheduled system-reboot at 2019-01-21T09:00:43Z" {
		t.Errorf("%s, %v", got, err)
	}
	if none, err := notice.ReadScheduled([]byte("[]")); err != nil || len(none) > 0 {
		t.Errorf("%v, %v", none, err)
	}
	back, err := notice.Parse(notice.Format(append(scheduled, spot, rebalance)))
	if diff := cmp.Diff(append(scheduled, spot, rebalance), back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestReadRefuses(t *testing.T) {
	spot := func(s string) error { _, err := notice.ReadSpot([]byte(s)); return err }
	rebalance := func(s string) error { _, err := notice.ReadRebalance([]byte(s)); return err }
	scheduled := func(s string) error { _, err := notice.ReadScheduled([]byte(s)); return err }
	parse := func(s string) error { _, err := notice.Parse(s); return err }
	for _, tt := range []struct {
		name string
		read func(string) error
		text string
	}{
		{"half a notice", spot, `{"action": "termi`},
		{"without a time", spot, `{"action": "terminate"}`},
		{"without an action", spot, `{"time": "2017-09-18T08:22:00Z"}`},
		{"another time", spot, `{"action": "stop", "time": "tomorrow"}`},
		{"an action of several lines", spot, `{"action": "stop\nspot", "time": "2017-09-18T08:22:00Z"}`},
		{"without a time", rebalance, `{}`},
		{"no list", scheduled, `{}`},
		{"the other form of time", scheduled, `[{"NotBefore": "2019-01-21T09:00:43Z", "Code": "system-reboot", "State": "active"}]`},
		{"without a code", scheduled, `[{"NotBefore": "21 Jan 2019 09:00:43 GMT", "State": "active"}]`},
		{"nothing", parse, ""},
		{"another kind", parse, "whim terminate at 2017-09-18T08:22:00Z"},
		{"more than a notice", parse, "spot terminate at 2017-09-18T08:22:00Z, please"},
		{"no such day", parse, "spot terminate at 2017-09-38T08:22:00Z"},
		{"no end", parse, strings.Repeat("spot terminate at 2017-09-18T08:22:00Z; ", 200) + "spot terminate at 2017-09-18T08:22:00Z"},
	} {
		if err := tt.read(tt.text); err == nil {
			t.Errorf("%s: %.60s is read", tt.name, tt.text)
		}
	}
}

func TestDue(t *testing.T) {
	const drain = 15 * time.Minute
	now := at("12:00:00")
	spot := notice.Notice{Kind: notice.Spot, Action: "terminate", At: at("12:02:00")}
	soon := notice.Notice{Kind: notice.Scheduled, Action: "system-reboot", At: at("12:10:00")}
	later := notice.Notice{Kind: notice.Scheduled, Action: "instance-stop", At: at("12:15:01")}
	rebalance := notice.Notice{Kind: notice.Rebalance, Action: "recommendation", At: at("11:59:00")}
	for _, tt := range []struct {
		name, policy string
		all          []notice.Notice
		want         notice.Order
	}{
		{"none", "", nil, notice.Order{}},
		{"a spot notice", "", []notice.Notice{spot}, notice.Order{Action: notice.Drain, Notice: spot, Until: at("12:01:50")}},
		{"an event that is near", "", []notice.Notice{soon}, notice.Order{Action: notice.Drain, Notice: soon, Until: at("12:09:50")}},
		{"an event that is not", "", []notice.Notice{later}, notice.Order{}},
		{"nor is it cordoned before", "scheduled=cordon", []notice.Notice{later}, notice.Order{}},
		{"a recommendation", "", []notice.Notice{rebalance}, notice.Order{}},
		{"which is acted on if wanted", "rebalance=drain", []notice.Notice{rebalance}, notice.Order{Action: notice.Drain, Notice: rebalance, Until: at("12:14:00")}},
		{"or cordoned", "rebalance=cordon", []notice.Notice{rebalance}, notice.Order{Action: notice.Cordon, Notice: rebalance}},
		{"what is over first", "rebalance=drain", []notice.Notice{rebalance, soon, spot}, notice.Order{Action: notice.Drain, Notice: spot, Until: at("12:01:50")}},
		{"an eviction rather than a cordon", "spot=cordon", []notice.Notice{spot, soon}, notice.Order{Action: notice.Drain, Notice: soon, Until: at("12:09:50")}},
		{"in any order", "spot=cordon", []notice.Notice{soon, spot}, notice.Order{Action: notice.Drain, Notice: soon, Until: at("12:09:50")}},
		{"nothing at all", "spot=ignore scheduled=ignore", []notice.Notice{spot, soon, rebalance}, notice.Order{}},
	} {
		p, err := notice.ParsePolicy(tt.policy)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, p.Due(tt.all, now, drain)); diff != "" {
			t.Errorf("%s:\n%s", tt.name, diff)
		}
	}
}

func TestPolicy(t *testing.T) {
	p := notice.Policy{Spot: notice.Cordon, Scheduled: notice.Ignore, Rebalance: notice.Drain}
	if back, err := notice.ParsePolicy(p.String()); err != nil || back != p {
		t.Errorf("%v, %v", back, err)
	}
	for _, wrong := range []string{"spot", "spot=", "spot=end", "whim=drain", "drain"} {
		if got, err := notice.ParsePolicy(wrong); err == nil || got != notice.DefaultPolicy() {
			t.Errorf("%q is read as %v", wrong, got)
		}
	}
}
