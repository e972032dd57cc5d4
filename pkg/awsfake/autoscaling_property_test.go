package awsfake

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// follows holds which state may follow which: the diagram "Amazon EC2 Auto Scaling instance lifecycle" of the User Guide,
// and an end from every state that is not one already.
func follows(from, to string) bool {
	next := map[string][]string{
		"":                      {StatePending},
		StatePending:            {StatePendingWait, StateInService, StateTerminating},
		StatePendingWait:        {StatePendingProceed, StateTerminating},
		StatePendingProceed:     {StateInService, StateTerminating},
		StateInService:          {StateTerminating},
		StateTerminating:        {StateTerminatingWait, StateTerminated},
		StateTerminatingWait:    {StateTerminatingProceed},
		StateTerminatingProceed: {StateTerminated},
	}
	return slices.Contains(next[from], to)
}

// TestStateMachine makes random calls, as operators and machines do. It checks every transition of instances and the
// group's size, and that groups settle at their desired capacity.
func TestStateMachine(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		b := newBench(t, Options{AutoScaling: AutoScalingOptions{Step: step, HealthCheck: 2 * step}})
		s := b.account.AutoScaling()
		if err := s.Create(Group{Name: "g", Max: 6, Desired: 3}); err != nil {
			t.Fatal(err)
		}
		for n, transition := range []string{transitionLaunching, transitionTerminating, transitionLaunching} {
			if random.IntN(2) == 0 {
				result := []string{Continue, Abandon}[random.IntN(2)]
				if n == 2 {
					result = Continue
				}
				if err := s.PutHook("g", Hook{Name: string(rune('a' + n)), Transition: transition, Heartbeat: 30 * time.Second, Default: result}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 150 {
			b.act(random)
			b.pass(time.Duration(random.IntN(3000)) * time.Millisecond)
		}
		b.comeToRest(t, seed)
	}
}

// act does one thing at random; that some are refused is part of it.
func (b *bench) act(random *rand.Rand) {
	s := b.account.AutoScaling()
	list := s.Instances("g")
	if len(list) == 0 {
		_ = s.SetDesired("g", 1+random.IntN(6))
		return
	}
	i := list[random.IntN(len(list))]
	switch random.IntN(5) {
	case 0:
		_ = s.SetDesired("g", random.IntN(7))
	case 1:
		b.account.EC2().Terminate(i.ID)
	case 2:
		_ = s.Terminate(i.ID, random.IntN(2) == 0)
	case 3:
		lowest := random.IntN(101)
		b.account.locked(func() { _, _ = s.startRefresh("g", refreshPreferences{MinHealthy: &lowest}, nil) })
	default:
		for _, hook := range []string{"a", "b", "c"} {
			_ = s.Complete("g", hook, i.ID, []string{Continue, Abandon}[random.IntN(2)])
		}
	}
}

// comeToRest completes pending actions, lets time pass, and checks history and size.
func (b *bench) comeToRest(t *testing.T, seed uint64) {
	t.Helper()
	s := b.account.AutoScaling()
	for range 400 {
		for _, i := range s.Instances("g") {
			for hook := range i.Tokens {
				_ = s.Complete("g", hook, i.ID, Continue) // another hook's end may have ended this one
			}
		}
		b.pass(step)
	}
	state := map[string]string{}
	for _, step := range s.History() {
		if state[step.Instance] != step.From || !follows(step.From, step.To) {
			t.Fatalf("seed %d: %s went from %q (was %q) to %q", seed, step.Instance, step.From, state[step.Instance], step.To)
		}
		state[step.Instance] = step.To
	}
	config, _ := s.Group("g")
	serving := 0
	for _, i := range s.Instances("g") {
		if i.State == StateInService {
			serving++
			if m, _ := b.account.EC2().Machine(i.ID); m.State != MachineRunning {
				t.Errorf("seed %d: %s is in service and %s", seed, i.ID, m.State)
			}
		} else {
			t.Errorf("seed %d: %s rests in %s", seed, i.ID, i.State)
		}
	}
	if serving != config.Desired {
		t.Errorf("seed %d: %d instances serve, %d are wanted", seed, serving, config.Desired)
	}
}
