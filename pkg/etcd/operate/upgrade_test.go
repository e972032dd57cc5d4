package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// upgradePace is how much faster the machines' clock goes here: slow enough that reports and backups are in time.
const upgradePace = 6

// TestRealUpgrade replaces the three members of the image's etcd by ones of the next minor version, one seat after another
// with its data, while a client writes. Between two seats the gate of stack refresh decides. Then it goes the way back.
func TestRealUpgrade(t *testing.T) {
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("compiles another etcd and takes minutes: HARDTACK_E2E=1 runs it")
	}
	next, version := etcdtest.NextPrograms(t, filepath.Join(t.TempDir(), "next"))
	w := newRealWorld(t, upgradePace)
	w.every = 10 * time.Minute
	before := w.bin
	flags := imageFlags(t, next)
	w.create(etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: etcd.NewToken(), Members: w.Peers}))
	for _, s := range w.seats {
		s.Flags = flags
		s.launch()
	}
	w.mustPut("a", "first")
	old := w.seats["a"].versions(t)
	if minor(old.Cluster) == minor(version) {
		t.Fatalf("the image's etcd is %s, and the next minor is %s", old.Server, version)
	}
	c := w.writes()
	upgraded := map[string]bool{}
	for _, name := range w.Members {
		w.gate(upgraded)
		w.seats[name].replace(next)
		w.until(name+" runs "+version, func() bool { return w.seats[name].versions(t).Server == version })
		upgraded[name] = true
		if now := w.seats[name].versions(t); len(upgraded) < 3 && now.Cluster != old.Cluster {
			t.Errorf("the cluster is at %s with %d of three", now.Cluster, len(upgraded))
		}
	}
	w.until("the cluster's version rises", func() bool { return minor(w.seats["a"].versions(t).Cluster) == minor(version) })
	w.gate(upgraded)

	back := w.seats["b"]
	back.replace(before)
	w.until("etcd refuses the way back", func() bool {
		return strings.Contains(back.log.String(), fmt.Sprintf(`version \"%s\" is not supported`, minor(version)+".0"))
	})
	<-back.Ended()
	backwards := map[string]bool{"b": true}
	w.until("the rollout stops at the first seat", func() bool {
		step := w.next(backwards)
		return step.Action == rollout.Wait && step.Group == "b"
	})
	t.Logf("the rollout waits: %s", w.next(backwards).Reason)
	if told := reason.Etcd.Next(); !strings.Contains(told, "etcdctl downgrade enable") {
		t.Errorf("the console's text is %q", told)
	}
	acknowledged := c.count()
	w.until("the others take writes", func() bool { return c.count() > acknowledged+20 })

	// What the text says: with the newer program, etcd is told to go down a minor version, and then takes the older one.
	back.replace(next)
	w.until("the newer program runs again", func() bool { return back.versions(t).Server == version })
	w.ctl(next, "a", "downgrade", "enable", minor(old.Cluster))
	w.until("the data are as the older version has them", func() bool {
		var said struct{ StorageVersion string }
		return back.ask("/v3/maintenance/status", "{}", &said) == nil && minor(said.StorageVersion) == minor(old.Cluster)
	})
	back.replace(before)
	w.until("the older program runs", func() bool { return back.versions(t).Server == old.Server })
	c.end(t)
	w.until("every member has all", func() bool {
		for name, s := range w.seats {
			if n, _, err := s.keys("w"); err != nil || n < int64(c.count()) {
				t.Logf("%s: %d of %d keys, %v", name, n, c.count(), err)
				return false
			}
		}
		return true
	})
	missing := 0
	for _, key := range c.keys() {
		if n, _, err := w.seats["c"].keys(key); err != nil || n == 0 {
			missing++
		}
	}
	t.Logf("etcd %s to %s: %d writes acknowledged, %d missing, the longest took %s", old.Server, version, c.count(), missing, c.longest.Round(time.Millisecond))
	if missing > 0 {
		t.Errorf("%d acknowledged writes are lost", missing)
	}
	for name, s := range w.seats {
		if strings.Contains(s.log.String(), "unrecognized environment variable") {
			t.Errorf("%s ignores something of its environment:\n%s", name, &s.log)
		}
	}
}

func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// imageFlags are the image's settings of etcd as flags, but for addresses and certificates. The next version must know all.
func imageFlags(t *testing.T, next string) (flags []string) {
	t.Helper()
	text, err := images.FS.ReadFile("rootfs/etc/kubernetes/etcd")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.CommandContext(t.Context(), filepath.Join(next, "etcd"), "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		flag := "--" + strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, "ETCD_"), "_", "-"))
		if !slices.Contains(strings.Fields(string(help)), flag) {
			t.Errorf("the next etcd does not know %s", flag)
		}
		if strings.HasSuffix(flag, "-megabytes") || strings.HasPrefix(flag, "--auto-") || strings.HasPrefix(flag, "--feature") || strings.HasPrefix(flag, "--quota") {
			flags = append(flags, flag+"="+value)
		}
	}
	if len(flags) != 4 {
		t.Fatalf("the image's file has %q", flags)
	}
	return flags
}

// versions are what a member says of itself and of its cluster; empty if it does not answer.
type versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
}

func (s *seat) versions(t *testing.T) (v versions) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.ClientURL()+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := http.DefaultClient.Do(req)
	if err != nil {
		return versions{}
	}
	defer out.Body.Close()
	if json.NewDecoder(out.Body).Decode(&v) != nil {
		return versions{}
	}
	return v
}

// replace replaces the machine by one with other programs, which takes over the data.
func (s *seat) replace(bin string) {
	s.stop()
	<-s.done
	_ = s.Stop(s.w.t.Context()) // it may have ended
	s.Bin = bin
	s.run(fmt.Sprintf("i-%s-%d", s.Name, s.machines))
}

// ctl runs etcdctl at a member.
func (w *realWorld) ctl(bin, name string, args ...string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), filepath.Join(bin, "etcdctl"), append([]string{"--endpoints=" + w.seats[name].ClientURL()}, args...)...).CombinedOutput()
	w.t.Logf("etcdctl %s: %s", strings.Join(args, " "), out)
	if err != nil {
		w.t.Fatal(err)
	}
}

// next is the next step of stack refresh by what the members report. The machines of all seats are in service.
func (w *realWorld) next(upgraded map[string]bool) rollout.Step {
	w.t.Helper()
	s := rollout.State{Cluster: "demo", Etcd: rollout.Reports{Epoch: 1, Members: map[string]etcd.Status{}}}
	wanted := rollout.Version{Number: 2, Image: "ami-2"}
	for _, name := range w.Members {
		from := rollout.Version{Number: 1, Image: "ami-1"}
		if upgraded[name] {
			from = wanted
		}
		s.Groups = append(s.Groups, rollout.Group{Name: name, Key: name, Roles: role.NewSet(role.Etcd), Member: name, Members: w.Members, Desired: 1, Launches: wanted, Wanted: wanted,
			Machines: []rollout.Machine{{ID: fmt.Sprintf("i-%s-%d", name, w.seats[name].machines), From: from, State: "InService", Healthy: true, Running: true, Published: true}}})
		text, err := w.store.Get(w.t.Context(), etcd.StatusObject(name))
		if err != nil {
			continue
		}
		if s.Etcd.Members[name], err = etcd.Parse[etcd.Status](text); err != nil {
			w.t.Fatal(err)
		}
	}
	s.Etcd.At = w.clock.Now()
	return rollout.Next(s, nil, nil)
}

// gate waits until the next machine may be replaced, and nothing is left if all are.
func (w *realWorld) gate(upgraded map[string]bool) {
	w.t.Helper()
	time.Sleep(2 * time.Minute / upgradePace) // each member has reported anew
	want, why := rollout.Replace, ""
	if len(upgraded) == len(w.Members) {
		want = rollout.Finished
	}
	w.until("the gate opens", func() bool {
		step := w.next(upgraded)
		if text := fmt.Sprint(step.Action, step.Reason); text != why {
			why = text
			w.t.Logf("%s: %s %s %s", w.clock.Now().Format(time.TimeOnly), step.Action, step.Group, step.Reason)
		}
		return step.Action == want
	})
	backup := 0
	for _, name := range w.Members {
		text, err := w.store.Get(w.t.Context(), etcd.StatusObject(name))
		if err != nil {
			w.t.Fatal(err)
		}
		if s, err := etcd.Parse[etcd.Status](text); err != nil {
			w.t.Fatal(err)
		} else if s.Backup != nil && w.clock.Now().Sub(s.Backup.At) <= rollout.BackupAge {
			backup++
		}
	}
	if backup == 0 {
		w.t.Error("the gate is open without a fresh backup")
	}
}

// client writes one key after another at whichever member takes it.
type client struct {
	stop chan struct{}
	done chan struct{}

	mu           sync.Mutex
	acknowledged []string
	longest      time.Duration // between two that were acknowledged
}

func (w *realWorld) writes() *client {
	c := &client{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(c.done)
		last := time.Now()
		for n := 0; ; n++ {
			select {
			case <-c.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			key := fmt.Sprintf("w%07d.", n)
			if _, err := w.seats[w.Members[n%len(w.Members)]].put(key); err != nil {
				continue // nobody knows whether it was written
			}
			c.mu.Lock()
			c.acknowledged, c.longest = append(c.acknowledged, key), max(c.longest, time.Since(last))
			c.mu.Unlock()
			last = time.Now()
		}
	}()
	return c
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acknowledged)
}

func (c *client) keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.acknowledged
}

func (c *client) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	<-c.done
	if c.count() == 0 {
		t.Fatal(errors.New("nothing was written"))
	}
}
