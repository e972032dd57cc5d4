package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// labStill is how long a lab may go without output of any machine and without a change. Under emulation on a busy
// computer, one step of a control plane can take minutes.
const labStill = 15 * time.Minute

// labBound limits a wait while machines print without progress. The longest wait that ended well took 6 minutes.
const labBound = 25 * time.Minute

// program is the hardtack command of this checkout, built once.
var program = sync.OnceValues(func() (string, error) {
	file, err := filepath.Abs(filepath.Join(root, "build", "e2e-hardtack"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", file, "../../cmd/hardtack").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the command: %w: %s", err, out)
	}
	return file, nil
})

// running is a lab that a test has started with the command, as a person does.
type running struct {
	*lab.Client
	home lab.Home
	env  []string
	bin  string
	file string // the cluster's document
}

// newLab starts a lab with this cluster and does not wait for its machines. The lab ends with the test.
func newLab(t *testing.T, name, cluster string) *running {
	t.Helper()
	disk, err := filepath.Abs(image(t))
	if err != nil {
		t.Fatal(err)
	}
	return startLab(t, name, cluster, "--detach", "--image", disk)
}

func startLab(t *testing.T, name, cluster string, flags ...string) *running {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	home, err := lab.NewHome(filepath.Join(state, "hardtack", "labs"), name)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, "cluster.yaml")
	r := &running{Client: lab.NewClient(home), home: home, bin: bin, env: append(os.Environ(), "XDG_STATE_HOME="+state), file: file}
	if err := os.WriteFile(file, []byte(cluster), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			r.keep(t)
		}
		s, asking := r.Status(context.Background())
		if out, err := r.run(context.Background(), "lab", "down", "--name", name); err != nil {
			t.Errorf("lab down: %v: %s", err, out)
		}
		if asking == nil {
			gone(t, s)
		}
	})
	if out, err := r.run(t.Context(), append([]string{"lab", "up", "--name", name, "-f", file}, flags...)...); err != nil {
		t.Fatalf("lab up: %v: %s", err, out)
	}
	return r
}

// gone asserts that no process of the lab's machines is left.
func gone(t *testing.T, s lab.Status) {
	t.Helper()
	for _, m := range s.Machines {
		if m.PID == 0 {
			continue
		}
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.PID)); err == nil && bytes.Contains(line, []byte(m.ID)) {
			t.Errorf("machine %s lives on as process %d", m.ID, m.PID)
		}
	}
}

// keep copies the consoles of the machines of a failed test to build/.
func (r *running) keep(t *testing.T) {
	t.Helper()
	to := filepath.Join(root, "build", "lab-"+r.home.Name)
	if err := os.RemoveAll(to); err != nil {
		t.Log(err)
	}
	for _, name := range []string{lab.ConsoleFile, lab.JournalFile, lab.TimelineFile} {
		files, _ := filepath.Glob(filepath.Join(r.home.Dir, "machines", "*", name)) // the pattern is a good one
		for _, f := range files {
			id := filepath.Base(filepath.Dir(f))
			text, err := os.ReadFile(f)
			if err == nil {
				err = errors.Join(os.MkdirAll(filepath.Join(to, id), 0o755), os.WriteFile(filepath.Join(to, id, name), text, 0o644))
			}
			if err != nil {
				t.Log(err)
			}
		}
	}
	t.Logf("consoles and journals are in %s", to)
}

// run runs the command.
func (r *running) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Env = r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// until waits for a state of the lab. It has no fixed time limit: it gives up when nothing changes any more.
func (r *running) until(t *testing.T, what string, ok func(lab.Status) bool) lab.Status {
	t.Helper()
	// Ctrl-C ends the wait and so the test, whose clean-up stops the lab.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer context.AfterFunc(interrupted, cancel)()
	s, err := r.Status(ctx)
	began, moved, words := time.Now(), time.Now(), ""
	for err == nil && !ok(s) {
		for _, m := range s.Machines {
			// No test expects this state, and such a machine cannot leave it.
			if slices.ContainsFunc(m.Failures, func(f reason.Failure) bool { return f.Reason == reason.Disk }) {
				t.Fatalf("waiting until %s: machine %s cannot write its disk: %+v", what, m.ID, m.Failures)
			}
		}
		if now := progress(s); now != words {
			moved, words = time.Now(), now
		}
		if time.Since(moved) > labStill || time.Since(began) > labBound {
			t.Fatalf("waiting until %s: in vain for %s, the last %s of them without any change; machines: %+v",
				what, time.Since(began).Round(time.Second), time.Since(moved).Round(time.Second), s.Machines)
		}
		s, err = r.Next(ctx, s.Revision)
	}
	if err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
	return s
}

// progress changes whenever a machine prints something or changes its state.
func progress(s lab.Status) string {
	var b strings.Builder
	for _, m := range s.Machines {
		fmt.Fprint(&b, m.ID, m.LastWord, m.Lifecycle, len(m.Reached))
	}
	return b.String()
}

// ask runs a command in a machine by its second serial line.
func (r *running) ask(t *testing.T, id, command string) string {
	t.Helper()
	// A hanging machine ends only this test and not the whole package; so does Ctrl-C.
	ctx, cancel := context.WithTimeout(interrupted, labStill)
	defer cancel()
	var out bytes.Buffer
	_, err := r.Exec(ctx, id, command, &out)
	for errors.Is(err, lab.ErrShellSilent) && ctx.Err() == nil { // it boots still
		_, err = r.Exec(ctx, id, command, &out)
	}
	if err != nil {
		t.Fatalf("asking %s: %v after %q", id, err, out.String())
	}
	return out.String()
}

// resolves asks for a name through the machine's own resolver.
func (r *running) resolves(t *testing.T, id, name string) []string {
	t.Helper()
	var addrs []string
	for line := range strings.Lines(r.ask(t, id, "getent ahostsv4 "+name)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "STREAM" {
			addrs = append(addrs, fields[0])
		}
	}
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// serving are the addresses of a group's machines in service.
func serving(s lab.Status, group string) []string {
	var addrs []string
	for _, m := range s.Machines {
		if m.Group == group && m.Lifecycle == "InService" {
			addrs = append(addrs, m.Address.String())
		}
	}
	slices.Sort(addrs)
	return addrs
}
