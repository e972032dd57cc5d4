package lab

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// up runs a lab in the test's process until the test ends.
func up(t *testing.T, plan Plan) (Home, *Client) {
	t.Helper()
	// The directory's path is longer than a socket's address may be.
	home, err := NewHome(filepath.Join(t.TempDir(), strings.Repeat("long", 30)), "lab")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Home: home, Plan: plan, Runner: pretend(plan, false), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, func() { close(ready) })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the lab's end: %v", err)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatalf("the lab did not come up: %v", err)
	}
	return home, NewClient(home)
}

// until waits until ok, and fails the test after a minute; what names the condition.
func until(t *testing.T, c *Client, what string, ok func(Status) bool) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := c.Status(ctx)
	for err == nil && !ok(s) {
		s, err = c.Next(ctx, s.Revision)
	}
	if err != nil {
		last, _ := c.Status(t.Context())
		t.Fatalf("waiting until %s: %v; the last status: %+v", what, err, last)
	}
	return s
}

func values(s Status, name string) []string {
	for _, r := range s.Records {
		if r.Name == name && r.Type == "A" {
			return r.Values
		}
	}
	return nil
}

// inService is a predicate for n machines of a role in service and in DNS.
func inService(role string, n int) func(Status) bool {
	return func(s Status) bool {
		var addrs []string
		for _, m := range s.Machines {
			if strings.Contains(m.Roles, role) && m.Lifecycle == "InService" {
				addrs = append(addrs, m.Address.String())
			}
		}
		slices.Sort(addrs)
		have := slices.Clone(values(s, role+".demo.k8s."))
		slices.Sort(have)
		return len(addrs) == n && slices.Equal(addrs, have)
	}
}

func TestGroupsKeepTheirSize(t *testing.T) {
	t.Parallel()
	home, c := up(t, planned(t))
	until(t, c, "both minions serve", inService("minions", 2))
	s := until(t, c, "the master serves", inService("masters", 1))
	master, err := s.Find("masters-a")
	if err != nil || master.Volume == "" || master.Member != "a" {
		t.Fatalf("the master: %+v, %v", master, err)
	}
	if got := values(s, "etcd-a.demo.k8s."); !slices.Equal(got, []string{master.Address.String()}) {
		t.Errorf("etcd-a.demo.k8s is %v, want the master's %s, which has the member's volume", got, master.Address)
	}
	if master.Phase() != timeline.PhaseReady || len(master.Failures) > 0 {
		t.Errorf("the master has reached %v, failures %v", master.Reached, master.Failures)
	}

	var victim MachineStatus
	for _, m := range s.Machines {
		if m.Group == "minions" {
			victim = m
		}
	}
	if err := c.Kill(t.Context(), victim.ID); err != nil {
		t.Fatal(err)
	}
	s = until(t, c, "the killed minion is replaced", func(s Status) bool {
		return inService("minions", 2)(s) && !slices.Contains(values(s, "minions.demo.k8s."), victim.Address.String())
	})
	dead, err := s.Find(victim.ID)
	if err != nil || dead.Power != "off" || dead.End != "killed" || dead.PID != 0 {
		t.Errorf("the killed machine: %+v, %v", dead, err)
	}
	if err := c.Kill(t.Context(), victim.ID); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("killing it again: %v", err)
	}
	if _, err := os.Stat(home.machine(victim.ID) + "/" + ConsoleFile); err != nil {
		t.Errorf("the dead machine's console: %v", err)
	}
}

// A master that is replaced gets the volume of its member, and the member's name follows.
func TestMemberFollowsVolume(t *testing.T) {
	t.Parallel()
	_, c := up(t, planned(t))
	s := until(t, c, "the master serves", inService("masters", 1))
	first, err := s.Find("masters-a")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	s = until(t, c, "another master serves under the member's name", func(s Status) bool {
		m, err := s.Find("masters-a")
		return err == nil && m.ID != first.ID && slices.Equal(values(s, "etcd-a.demo.k8s."), []string{m.Address.String()}) && inService("masters", 1)(s)
	})
	if m, _ := s.Find("masters-a"); m.Volume != first.Volume {
		t.Errorf("the new master has volume %s, the first had %s", m.Volume, first.Volume)
	}
}

func TestShell(t *testing.T) {
	t.Parallel()
	_, c := up(t, planned(t))
	s := until(t, c, "the master has power", func(s Status) bool { m, err := s.Find("masters-a"); return err == nil && m.Power == "on" })
	m, err := s.Find("masters-a")
	if err != nil {
		t.Fatal(err)
	}
	line, err := c.Shell(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer line.Close()
	if _, err := line.Write([]byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if n, err := line.Read(got); err != nil || string(got[:n]) != "hello\n" {
		t.Errorf("the line says %q, %v", got[:n], err)
	}
	if _, err := c.Shell(t.Context(), "i-none"); err == nil || !strings.Contains(err.Error(), "no machine i-none") {
		t.Errorf("a shell on no machine: %v", err)
	}
}

// A second daemon is refused, and two labs live side by side.
func TestSideBySide(t *testing.T) {
	t.Parallel()
	plan := planned(t)
	home, _ := up(t, plan)
	err := Run(t.Context(), Config{Home: home, Plan: plan, Runner: pretend(plan, false), Log: slog.New(slog.DiscardHandler)}, func() {})
	if err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("a second daemon: %v", err)
	}
	_, other := up(t, planned(t))
	until(t, other, "the other lab's master serves", inService("masters", 1))
}

func TestDown(t *testing.T) {
	t.Parallel()
	home, c := up(t, planned(t))
	s := until(t, c, "all machines have power", func(s Status) bool {
		return !slices.ContainsFunc(s.Machines, func(m MachineStatus) bool { return m.Power != "on" }) && len(s.Machines) == 3
	})
	if err := c.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Machines {
		if _, err := processOf(m.PID); err == nil {
			t.Errorf("machine %s outlives its lab as process %d", m.ID, m.PID)
		}
	}
	if _, err := c.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "is not running") {
		t.Errorf("asking a lab that is down: %v", err)
	}
	for _, name := range []string{daemonFile, socketFile, volumesDir, KubeconfigFile} {
		if _, err := os.Lstat(home.path(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// TestKilledDaemon kills a daemon whose machines live on, and clears up after it.
func TestKilledDaemon(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	home, err := NewHome(root, "killed")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := home.StartDaemon(t.Context(), run.Command{Name: self, Args: []string{daemonMode, root, "killed"}}); err != nil {
		t.Fatal(err)
	}
	c := NewClient(home)
	s := until(t, c, "all machines have power", func(s Status) bool {
		return !slices.ContainsFunc(s.Machines, func(m MachineStatus) bool { return m.Power != "on" }) && len(s.Machines) == 3
	})
	daemon, err := readProcess(home.path(daemonFile))
	if err != nil {
		t.Fatal(err)
	}
	temporary, err := os.ReadFile(home.path(temporaryFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.kill(); err != nil {
		t.Fatal(err)
	}
	if left, err := home.leftovers(); err != nil || len(left) != 3 {
		t.Fatalf("the machines of a killed daemon: %v, %v, want three that live on", left, err)
	}
	if runs, err := home.Running(); err != nil || runs {
		t.Errorf("the killed lab runs: %v, %v", runs, err)
	}
	if ended, err := home.Clear(); err != nil || ended != 3 {
		t.Errorf("cleared %d, %v, want 3", ended, err)
	}
	for _, m := range s.Machines {
		if _, err := processOf(m.PID); err == nil {
			t.Errorf("machine %s lives on as process %d", m.ID, m.PID)
		}
	}
	if _, err := os.Stat(string(temporary)); err == nil {
		t.Errorf("%s is left", temporary)
	}
	if _, err := home.LogOf(s.Machines[0].ID, ConsoleFile); err != nil {
		t.Errorf("the console of a killed lab's machine: %v", err)
	}
}

// TestDaemonEndsEarly expects the end of the log in the error.
func TestDaemonEndsEarly(t *testing.T) {
	t.Parallel()
	home, err := NewHome(t.TempDir(), "early")
	if err != nil {
		t.Fatal(err)
	}
	err = home.StartDaemon(t.Context(), run.Command{Name: "/bin/sh", Args: []string{"-c", "echo no flour left >&2; exit 3"}})
	if err == nil || !strings.Contains(err.Error(), "no flour left") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(home.path(temporaryFile)); err == nil {
		t.Error("its temporary directory is left")
	}
}

// TestInterruptedStart: whenever the start of a daemon is given up, it has returned when nothing of the lab runs any more.
func TestInterruptedStart(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][]string{
		"at-once": nil, // the daemon has not even the lab's lock
		"daemon":  {daemonFile},
		"machine": {machinesDir, "*", processFile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			home, err := NewHome(root, name)
			if err != nil {
				t.Fatal(err)
			}
			command := run.Command{Name: self, Args: []string{daemonMode, root, name}}
			if files == nil {
				command = run.Command{Name: "/bin/sh", Args: append([]string{"-c", `sleep 0.3; exec "$0" "$@"`, self}, command.Args...)}
			}
			ctx, interrupt := context.WithCancel(t.Context())
			go func() {
				for ctx.Err() == nil && files != nil {
					if found, _ := filepath.Glob(home.path(files...)); len(found) > 0 {
						break
					}
					time.Sleep(time.Millisecond)
				}
				interrupt()
			}()
			err = home.StartDaemon(ctx, command)
			if err == nil { // it answered first
				err = errors.Join(context.Canceled, NewClient(home).Down(t.Context()))
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the start that was given up: %v", err)
			}
			if files == nil {
				time.Sleep(time.Second) // in which the daemon would have come up
			}
			if runs, err := home.Running(); err != nil || runs {
				t.Errorf("the lab runs: %v, %v", runs, err)
			}
			if left, err := home.leftovers(); err != nil || len(left) > 0 {
				t.Errorf("machines live on: %v, %v", left, err)
			}
			if _, err := os.Stat(home.path(temporaryFile)); err == nil {
				t.Error("its temporary directory is left")
			}
			if err := NewClient(home).Down(t.Context()); !errors.Is(err, ErrNotRunning) {
				t.Errorf("ending what runs for certain not: %v", err)
			}
		})
	}
}

// TestTwoStarts: of two who start a lab of one name at once one does, by its own document, and the other is told.
func TestTwoStarts(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	home, err := NewHome(root, "twice")
	if err != nil {
		t.Fatal(err)
	}
	command := run.Command{Name: self, Args: []string{daemonMode, root, "twice"}}
	start := func(document string) error {
		done, err := home.Starting()
		if err != nil {
			return err
		}
		defer func() { _ = done() }()
		if _, err := home.WriteSpec([]byte(document)); err != nil {
			return err
		}
		return home.StartDaemon(t.Context(), command)
	}
	documents := []string{"one's", "another's"}
	errs := make([]error, len(documents))
	var both sync.WaitGroup
	for i, document := range documents {
		both.Go(func() { errs[i] = start(document) })
	}
	both.Wait()
	defer func() { _ = NewClient(home).Down(context.WithoutCancel(t.Context())) }()
	loser := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if loser < 0 || !errors.Is(errs[loser], ErrRunning) || errs[1-loser] != nil {
		t.Fatalf("they got %v, want that one is told %q", errs, ErrRunning)
	}
	if text, err := os.ReadFile(home.path(specFile)); err != nil || string(text) != documents[1-loser] {
		t.Errorf("the document is %s, %v, want %s", text, err, documents[1-loser])
	}
	if s, err := NewClient(home).Status(t.Context()); err != nil || len(s.Machines) == 0 {
		t.Errorf("the lab that was started: %v, %v", s.Machines, err)
	}
	if err := start("a later one's"); !errors.Is(err, ErrRunning) {
		t.Errorf("once more: %v", err)
	}
}

// TestAbandonSilent: a lab that somebody has, and that neither answers nor has a recorded daemon, is an error in the end.
func TestAbandonSilent(t *testing.T) {
	t.Parallel()
	home, err := NewHome(t.TempDir(), "silent")
	if err != nil {
		t.Fatal(err)
	}
	if err := home.make(); err != nil {
		t.Fatal(err)
	}
	lock, err := home.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := home.Abandon(ctx, 100*time.Millisecond); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want what keeps it from ending the lab", err)
	}
}

// TestForeignProcess leaves a process alone that has got the number of one that was recorded.
func TestForeignProcess(t *testing.T) {
	t.Parallel()
	me, err := processOf(os.Getpid())
	if err != nil || !me.Alive() {
		t.Fatalf("%+v, %v", me, err)
	}
	other := me
	other.Start--
	if other.Alive() {
		t.Error("a process that started at another time is taken for the same")
	}
	if err := other.kill(); err != nil {
		t.Error(err)
	}
}

// A group without machines gets them when its size changes, and loses them again, out of DNS first.
func TestScale(t *testing.T) {
	t.Parallel()
	plan := planned(t)
	plan.Groups[0].Size, plan.Groups[1].Size = 1, 0
	_, c := up(t, plan)
	until(t, c, "the master serves", inService("masters", 1))
	if err := c.Scale(t.Context(), "minions", 1); err != nil {
		t.Fatal(err)
	}
	s := until(t, c, "the minion serves", inService("minions", 1))
	if len(s.Groups) != 2 || s.Groups[1].Desired != 1 {
		t.Errorf("groups %+v", s.Groups)
	}
	if err := c.Scale(t.Context(), "nobody", 1); err == nil || !strings.Contains(err.Error(), `no group "nobody"`) {
		t.Errorf("scaling a group that there is not: %v", err)
	}
}
