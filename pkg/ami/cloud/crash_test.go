package cloud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
)

// child is the environment variable by which the test's own program is a publisher, to be killed.
const child = "HARDTACK_TEST_PUBLISH"

// errand is what the child is to do.
type errand struct{ URL, State, Disk string }

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runChild(text string) error {
	var e errand
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return err
	}
	d, err := qcow2.Open(e.Disk)
	if err != nil {
		return err
	}
	c := cloud.New(aws.Config{Region: home, BaseEndpoint: &e.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}, quick)
	p, err := ami.New(ami.Config{Blocks: c, Snapshots: c, Images: c, State: e.State, Workers: 1})
	if err != nil {
		return err
	}
	_, err = p.Publish(context.Background(), ami.Request{Disk: d, Image: "test", Architecture: "amd64"})
	return err
}

// process is the child as it runs.
type process struct {
	mu  sync.Mutex
	cmd *exec.Cmd
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Errorf("%v: %v", s, err)
	}
}

// run publishes in a process of its own, and reports whether it was killed.
func (p *process) run(t *testing.T, e errand) (killed bool) {
	t.Helper()
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.cmd = exec.CommandContext(t.Context(), os.Args[0])
	p.cmd.Env = append(os.Environ(), child+"="+string(text))
	p.cmd.Stderr = t.Output()
	err = p.cmd.Start()
	p.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	err = p.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// step is a request of a publication: the n-th of an action.
type step struct {
	action string
	n      int
}

// steps are all that a publication on a parent makes, but for more looks at what is in the making.
func steps() []step {
	return []step{
		{"DescribeImages", 1}, {"DescribeImages", 2}, {"ListSnapshotBlocks", 1}, {"GetSnapshotBlock", 1}, {"StartSnapshot", 1},
		{"PutSnapshotBlock", 1}, {"PutSnapshotBlock", 2}, {"PutSnapshotBlock", 3}, {"PutSnapshotBlock", 4}, {"CompleteSnapshot", 1},
		{"DescribeSnapshots", 1}, {"RegisterImage", 1}, {"DescribeImages", 3},
	}
}

// A process is killed in every request that it makes: before the request was carried out, and after it was, before
// the answer came. The next process goes on, sends no block twice that was acknowledged, and leaves one image.
func TestKilledAtEveryStep(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9, 20)
	first := makeDisk(t, 16*mib, "one", 0, 3, 10)
	for _, carried := range []bool{false, true} {
		for _, at := range steps() {
			t.Run(fmt.Sprintf("%s/%d/carried-out=%v", at.action, at.n, carried), func(t *testing.T) {
				t.Parallel()
				killAt(t, first, file, at, carried)
			})
		}
	}
}

// killAt kills a process in one of its requests, and has another go on.
func killAt(t *testing.T, first, file string, at step, carried bool) {
	t.Helper()
	const blocks = 4 // 9 and 20 are new, 10 is gone, and the manifest
	w := newWorld(t, slow())
	parent := w.publish(t, first)
	p := &process{}
	g := w.guard(t, &gate{})
	g.before = func(_ *http.Request, n int, action string, body []byte) ([]byte, error) {
		if at != (step{action, n}) {
			return body, nil
		}
		if carried {
			p.signal(t, syscall.SIGSTOP) // it hears of nothing any more
			return body, nil
		}
		p.signal(t, syscall.SIGKILL)
		return nil, errGone
	}
	g.after = func(n int, action string) {
		if at == (step{action, n}) && carried {
			p.signal(t, syscall.SIGKILL)
		}
	}
	e := errand{w.url, w.state, file}
	if !p.run(t, e) {
		t.Fatal("it ended before the step came")
	}
	if p.run(t, e) {
		t.Fatal("the second process was killed too")
	}
	image := w.account.Images().List()[1]
	w.holds(t, image.Disks[0].Snapshot, file)
	w.only(t, parent.Image, image.ID)
	// The block in whose request the process died may have to be sent again.
	if puts := g.asked("PutSnapshotBlock"); puts < blocks || puts > blocks+1 {
		t.Errorf("%d blocks were sent for %d", puts, blocks)
	}
	if s, _ := w.account.Images().Snapshot(image.Disks[0].Snapshot); s.Parent != parent.Snapshot {
		t.Errorf("the parent is %q", s.Parent)
	}
}
