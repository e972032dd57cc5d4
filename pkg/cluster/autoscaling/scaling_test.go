package autoscaling_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/autoscaling"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	allOld = "etcd-a 1: a; etcd-b 1: a; etcd-c 1: a; masters 1: a a; minions 1: a a a"
	allNew = "etcd-a 2: b; etcd-b 2: b; etcd-c 2: b; masters 2: b b; minions 2: b b b"
)

var etcd = []string{"etcd-a", "etcd-b", "etcd-c"}

func (w *world) run(o rollout.Options) (rollout.Done, error) {
	w.t.Helper()
	runner := &rollout.Runner{Reader: w.cluster, Executor: w.cluster, Clock: w, Options: o, OnStep: func(s rollout.Step) { w.t.Logf("%s %+v", w.Now().Format("15:04:05"), s) }}
	return runner.Run(w.t.Context())
}

func (w *world) want(fleet string) {
	w.t.Helper()
	if got := w.fleet(); got != fleet {
		w.t.Errorf("there is  %s\nthere should be %s", got, fleet)
	}
}

// A new image is rolled out through the whole cluster: stack, groups, hooks, function and DNS are those of production.
func TestRefresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.want(allOld)
	w.publish(imageB)
	w.deploy("three")
	w.want(strings.NewReplacer("a 1", "a 2", "b 1", "b 2", "c 1", "c 2", "s 1", "s 2").Replace(allOld)) // only the version for the next machine changed

	var refusal *rollout.Refusal
	if _, err := w.run(rollout.Options{}); !errors.As(err, &refusal) || len(refusal.Losses) != 3 || strings.Join(refusal.Safe, " ") != "masters minions" {
		t.Fatalf("%v", err)
	}
	done, err := w.run(rollout.Options{AllowDataLoss: etcd})
	if err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.want(allNew)
	if len(done.Replaced) != 5 || strings.Join(done.Refreshed, " ") != "demo-minions" {
		t.Errorf("%+v", done)
	}
	if w.least != w.all-1 {
		t.Errorf("at least %d of %d of the control plane served", w.least, w.all)
	}
	before := w.account.Calls()
	if done, err := w.run(rollout.Options{}); err != nil || len(done.Replaced)+len(done.Refreshed) != 0 {
		t.Errorf("again: %+v, %v", done, err)
	}
	for _, call := range []string{"TerminateInstanceInAutoScalingGroup", "StartInstanceRefresh", "UpdateAutoScalingGroup"} {
		if w.account.Calls()["autoscaling:"+call] != before["autoscaling:"+call] {
			t.Errorf("again: %s was called", call)
		}
	}
}

// Pods that take nearly as long as the longest drainTimeout to move do not make a refresh fail, and it is not finished before
// the last machine that they are on has ended.
func TestRefreshWaitsForPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.pods = 110 * time.Minute
	w.publish(imageB)
	w.deploy("three")
	err := w.account.AutoScaling().PutHook("demo-minions", awsfake.Hook{Name: role.EvictionHook, Transition: "autoscaling:EC2_INSTANCE_TERMINATING", Heartbeat: 2 * time.Hour, Default: awsfake.Continue})
	if err != nil {
		t.Fatal(err)
	}
	done, err := w.run(rollout.Options{Only: []string{"minions"}, Poll: time.Minute})
	if err != nil || strings.Join(done.Refreshed, " ") != "demo-minions" {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := w.fleet(); !strings.HasSuffix(got, "minions 2: b b b") {
		t.Errorf("finished with %s", got)
	}
}

// Minions are started before others end where the group has room for it; where it has none, AutoScaling is not asked for what it
// might wait for in vain.
func TestRefreshAhead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ limit, least, most int }{
		"with room":    {4, 3, 4},
		"without room": {3, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "three")
			w.publish(imageB)
			w.deploy("three")
			limit := int32(want.limit)
			if _, err := w.scaling.UpdateAutoScalingGroup(t.Context(), &sdk.UpdateAutoScalingGroupInput{AutoScalingGroupName: aws.String("demo-minions"), MaxSize: &limit}); err != nil {
				t.Fatal(err)
			}
			w.cluster.Preferences = autoscaling.DefaultPreferences()
			least, most, began := 3, 3, w.Now()
			w.asleep = func() {
				serving, all := 0, 0
				for _, i := range w.account.AutoScaling().Instances("demo-minions") {
					switch i.State {
					case awsfake.StateInService:
						serving, all = serving+1, all+1
					case awsfake.StatePending, "Pending:Wait":
						all++
					}
				}
				least, most = min(least, serving), max(most, all)
			}
			done, err := w.run(rollout.Options{Only: []string{"minions"}})
			if err != nil || strings.Join(done.Refreshed, " ") != "demo-minions" {
				t.Fatalf("%+v, %v", done, err)
			}
			if least != want.least || most != want.most {
				t.Errorf("%d to %d minions, want %d to %d", least, most, want.least, want.most)
			}
			if took := w.Now().Sub(began); took < 10*time.Minute {
				t.Errorf("it took %v, and there are two checkpoints of 5 minutes", took)
			}
		})
	}
}

// A version that cannot be launched stops the refresh at its first machines, and AutoScaling rolls back to the version
// that the machines had before, although the stack has the new one. The stack's version stays the wanted one.
func TestRefreshIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.publish(imageB)
	w.deploy("three")
	w.out = true
	began := w.Now()
	w.asleep = func() { w.out = w.Now().Sub(began) < 70*time.Minute }
	minions := rollout.Options{Only: []string{"minions"}, Poll: time.Minute, Patience: 2 * time.Hour}
	_, err := w.run(minions)
	if err == nil || !strings.Contains(err.Error(), "RollbackSuccessful") || !strings.Contains(err.Error(), "the group launches version 1") {
		t.Fatalf("%v", err)
	}
	w.settle()
	if got := w.fleet(); !strings.Contains(got, "minions 1: a a a") {
		t.Errorf("%s", got)
	}
	if _, err := w.run(minions); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.fleet(); !strings.Contains(got, "minions 2: b b b") {
		t.Errorf("%s", got)
	}
}

// A bad image, whose machines never come up, stops at the first minions.
func TestBadImage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.publish(imageB)
	w.deploy("three")
	w.broken = imageB
	_, err := w.run(rollout.Options{Only: []string{"minions"}, Poll: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "waiting for demo-minions") {
		t.Fatalf("%v", err)
	}
	if err := w.cluster.TakeBack(t.Context(), "demo-minions"); err != nil {
		t.Fatal(err)
	}
	w.cluster.Wanted = map[string]int{"demo-minions": 1}
	if _, err := w.run(rollout.Options{Only: []string{"minions"}, Poll: time.Minute}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if got := w.fleet(); !strings.Contains(got, "minions 1: a a a") {
		t.Errorf("%s", got)
	}
}

// A master that does not come up stops the rollout, and a rollback begins with it.
func TestBadMaster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.publish(imageB)
	w.deploy("three")
	w.broken = imageB
	_, err := w.run(rollout.Options{Only: []string{"masters", "minions"}, Poll: time.Minute})
	if err == nil || !strings.Contains(err.Error(), "waiting for demo-masters") {
		t.Fatalf("%v", err)
	}
	if w.least != w.all-1 || !strings.Contains(w.fleet(), "minions 2: a a a") {
		t.Errorf("at least %d of %d served, %s", w.least, w.all, w.fleet())
	}
	all, err := w.cluster.Versions(t.Context(), "demo-masters")
	if err != nil {
		t.Fatal(err)
	}
	back, ok := rollout.Previous(all, all[len(all)-1])
	if !ok || back.Number != 1 || back.Image != imageA {
		t.Fatalf("before %+v: %+v", all, back)
	}
	w.cluster.Wanted = map[string]int{"demo-masters": 1}
	if _, err := w.run(rollout.Options{Only: []string{"masters"}}); err != nil {
		t.Fatal(err)
	}
	if got := w.fleet(); !strings.Contains(got, "masters 1: a a") || w.least != w.all-1 {
		t.Errorf("%s, at least %d of %d served", got, w.least, w.all)
	}
}

// A run that is interrupted anywhere continues, and replaces no machine more than needed.
func TestRefreshIsResumable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.publish(imageB)
	w.deploy("three")
	runs := 0
	for ; runs < 200; runs++ {
		ctx, cancel := context.WithCancel(t.Context())
		slept := 0
		w.asleep = func() {
			if slept++; slept == 1+runs%4 {
				cancel()
			}
		}
		runner := &rollout.Runner{Reader: w.cluster, Executor: w.cluster, Clock: w, Options: rollout.Options{AllowDataLoss: etcd}, OnStep: func(s rollout.Step) { t.Logf("%s %+v", w.Now().Format("15:04:05"), s) }}
		_, err := runner.Run(ctx)
		cancel()
		var left *rollout.Interrupted
		if err == nil {
			break
		}
		if !errors.As(err, &left) {
			t.Fatal(err)
		}
	}
	w.settle()
	w.want(allNew)
	if n := w.account.Calls()["autoscaling:TerminateInstanceInAutoScalingGroup"]; n != 5 || w.least != w.all-1 {
		t.Errorf("%d machines were ended in %d runs, at least %d of %d served", n, runs, w.least, w.all)
	}
	if n := w.account.Calls()["autoscaling:StartInstanceRefresh"]; n != 1 {
		t.Errorf("%d refreshes", n)
	}
}

// A refresh is cancelled or rolled back; neither fails if the refresh is already gone.
func TestCancelAndTakeBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "three")
	w.publish(imageB)
	w.deploy("three")
	begin := func() {
		t.Helper()
		s, err := w.cluster.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.cluster.Start(t.Context(), rollout.Next(s, []string{"minions"}, nil)); err != nil {
			t.Fatal(err)
		}
		if err := w.Sleep(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	for range 2 {
		if err := w.cluster.Cancel(t.Context(), "demo-minions"); err != nil {
			t.Error(err)
		}
		w.settle()
	}
	if got := w.fleet(); !strings.Contains(got, "minions 1: a b") && !strings.Contains(got, "minions 1: a a b") && !strings.Contains(got, "minions 1: a b b") {
		t.Errorf("cancelled: %s", got)
	}
	if err := w.cluster.Point(t.Context(), "demo-minions", 1); err != nil {
		t.Fatal(err)
	}
	begin()
	for range 2 {
		if err := w.cluster.TakeBack(t.Context(), "demo-minions"); err != nil {
			t.Error(err)
		}
		w.settle()
	}
	if got := w.fleet(); !strings.Contains(got, "minions 1: a a a") {
		t.Errorf("taken back: %s", got)
	}
	if err := w.cluster.Replace(t.Context(), "i-0123456789abcdef0"); err != nil {
		t.Errorf("a machine that is not there: %v", err)
	}
}

// Another configuration in the document is noticed by its hash.
func TestDefaultCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	w.want("masters 1: a; minions 1: a a")
	w.publish(imageB)
	w.deploy("default")
	var refusal *rollout.Refusal
	if _, err := w.run(rollout.Options{}); !errors.As(err, &refusal) || refusal.Losses[0].Group != "masters" || !strings.Contains(err.Error(), "it is all of etcd") {
		t.Fatalf("%v", err)
	}
	if _, err := w.run(rollout.Options{Only: refusal.Safe}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.want("masters 2: a; minions 2: b b")
}

func TestPreferences(t *testing.T) {
	for _, tt := range []struct {
		p    autoscaling.Preferences
		want string // parts of the problems, by semicolons; empty is none
	}{
		{autoscaling.Preferences{MinHealthy: 90, Checkpoints: []int{25, 50, 100}, Delay: 300}, ""},
		{autoscaling.Preferences{MinHealthy: 0}, ""},
		{autoscaling.DefaultPreferences(), ""},
		{autoscaling.Preferences{MinHealthy: 50, MaxHealthy: 150}, ""},
		{autoscaling.Preferences{MinHealthy: 100, MaxHealthy: 200}, ""},
		{autoscaling.Preferences{MinHealthy: 100, MaxHealthy: 100}, ""},
		{autoscaling.Preferences{MinHealthy: 90, MaxHealthy: 99}, "99 % is not between 100 and 200"},
		{autoscaling.Preferences{MinHealthy: 90, MaxHealthy: 201}, "201 % is not between 100 and 200"},
		{autoscaling.Preferences{MinHealthy: 50, MaxHealthy: 151}, "more than 100 apart"},
		{autoscaling.Preferences{MinHealthy: 101}, "101 % is not between 0 and 100"},
		{autoscaling.Preferences{MinHealthy: -1}, "-1 % is not between 0 and 100"},
		{autoscaling.Preferences{Checkpoints: []int{100}}, ""},
		{autoscaling.Preferences{Checkpoints: []int{50, 25, 100}}, "not ascending"},
		{autoscaling.Preferences{Checkpoints: []int{50, 50, 100}}, "not ascending"},
		{autoscaling.Preferences{Checkpoints: []int{50, 40, 30, 100}}, "not ascending"},
		{autoscaling.Preferences{Checkpoints: []int{0, 100}}, "not ascending"},
		{autoscaling.Preferences{Checkpoints: []int{50, 101}}, "from 1 to 100;the last is not 100"},
		{autoscaling.Preferences{Checkpoints: []int{50}}, "the last is not 100"},
		{autoscaling.Preferences{Delay: 172_800}, ""},
		{autoscaling.Preferences{Delay: -1}, "two days"},
		{autoscaling.Preferences{Delay: 172_801}, "two days"},
		{autoscaling.Preferences{MinHealthy: 101, MaxHealthy: 1, Delay: -1}, "minimum;maximum;delay"},
	} {
		var problems, want []string
		if err := tt.p.Check(); err != nil {
			problems = strings.Split(err.Error(), "\n")
		}
		if tt.want != "" {
			want = strings.Split(tt.want, ";")
		}
		if !slices.EqualFunc(problems, want, strings.Contains) {
			t.Errorf("%+v: %q, want %q", tt.p, problems, want)
		}
	}
}
