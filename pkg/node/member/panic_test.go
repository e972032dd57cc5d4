package member

import (
	"context"
	"errors"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// answering is a member of its own that answers or does not.
type answering struct {
	Peer
	does bool
}

func (a *answering) Status(context.Context) (Status, error) {
	if !a.does {
		return Status{}, errors.New("connection refused")
	}
	return Status{ID: 1}, nil
}

// stopped is a service that can be stopped, or cannot.
type stopped struct {
	Service
	err error
}

func (s stopped) Stop(context.Context) error { return s.err }

// TestPanics: only panics in a row count, and only those that this process has seen.
func TestPanics(t *testing.T) {
	panicked := func(ends int) State { return State{Running: true, Failing: true, Ends: ends, Panicked: true} }
	starts := func(ends int) State { return State{Running: true, Ends: ends} }
	type look struct {
		state   State
		answers bool
		reads   bool
		unknown error
		want    int
	}
	for name, looks := range map[string][]look{
		"in a row":                            {{state: starts(0)}, {state: panicked(1), want: 1}, {state: starts(1), want: 1}, {state: panicked(2), want: 2}, {state: panicked(5), want: 5}},
		"before it looked":                    {{state: panicked(9)}, {state: panicked(10), want: 1}},
		"an answer between":                   {{state: starts(0)}, {state: panicked(4), want: 4}, {state: starts(4), answers: true}, {state: panicked(5), want: 1}},
		"a read between":                      {{state: starts(0)}, {state: panicked(4), want: 4}, {state: starts(4), reads: true}, {state: panicked(5), want: 1}},
		"killed, or without space, between":   {{state: starts(0)}, {state: panicked(4), want: 4}, {state: State{Running: true, Failing: true, Ends: 5}}, {state: panicked(6), want: 1}},
		"started anew":                        {{state: starts(3)}, {state: panicked(7), want: 4}, {state: starts(0)}, {state: panicked(1), want: 1}},
		"the service manager does not say it": {{state: starts(0)}, {state: panicked(4), want: 4}, {unknown: errors.New("no bus")}, {state: panicked(5), want: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			own := &answering{}
			m := New(Config{Peer: func(string) Peer { return own }, Environment: t.TempDir() + "/none"})
			for i, l := range looks {
				own.does = l.answers
				f := etcd.Facts{Etcd: etcd.Process{Reads: l.reads}}
				if got := m.panicked(t.Context(), &f, l.state, l.unknown); got != l.want {
					t.Errorf("look %d: %d panics in a row, want %d", i+1, got, l.want)
				}
			}
		})
	}
}

// TestBroken: what was halted since it panicked is remembered until etcd is started again, and only if it was halted.
func TestBroken(t *testing.T) {
	m := New(Config{Service: stopped{err: errors.New("it hangs")}, Environment: t.TempDir() + "/env"})
	f := etcd.Facts{Disk: etcd.Disk{Marker: &etcd.Marker{MemberID: 7}}}
	halt := etcd.Action{Row: etcd.S4Broken, Do: etcd.Halt}
	if err := m.act(t.Context(), halt, f); err == nil || m.broken != 0 {
		t.Errorf("not halted: broken %s, %v", m.broken, err)
	}
	m.Service = stopped{}
	if err := m.act(t.Context(), etcd.Action{Row: etcd.S2Gone, Do: etcd.Halt}, f); err != nil || m.broken != 0 {
		t.Errorf("halted for another reason: broken %s, %v", m.broken, err)
	}
	if err := m.act(t.Context(), halt, f); err != nil || m.broken != 7 {
		t.Errorf("halted: broken %s, %v", m.broken, err)
	}
	if err := m.write(nil, environment{}); err != nil || m.broken != 0 {
		t.Errorf("to be started: broken %s, %v", m.broken, err)
	}
}
