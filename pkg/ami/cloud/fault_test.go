package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// Ctrl-C in every request, before it was carried out and after: nothing is left behind, but for the parent.
func TestInterruptedAtEveryStep(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9, 20)
	first := makeDisk(t, 16*mib, "one", 0, 3, 10)
	for _, carried := range []bool{false, true} {
		for _, at := range steps() {
			t.Run(fmt.Sprintf("%s/%d/carried-out=%v", at.action, at.n, carried), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, slow())
				parent := w.publish(t, first)
				ctx, cancel := context.WithCancel(t.Context())
				g := w.guard(t, &gate{})
				g.before = func(_ *http.Request, n int, action string, body []byte) ([]byte, error) {
					if at == (step{action, n}) && !carried {
						cancel()
						return nil, errGone
					}
					return body, nil
				}
				g.after = func(n int, action string) {
					if at == (step{action, n}) && carried {
						cancel()
					}
				}
				_, err := w.publisher(t).Publish(ctx, request(t, file))
				if !errors.Is(err, context.Canceled) {
					t.Errorf("it ended with %v", err)
				}
				w.only(t, parent.Image)
			})
		}
	}
}

// What is refused for good ends the publication, and takes away what there was of it.
func TestRefusedAtEveryStep(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9, 20)
	for _, action := range []string{"StartSnapshot", "PutSnapshotBlock", "CompleteSnapshot", "RegisterImage"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow())
			w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
				if c.Action == action {
					return awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "UnauthorizedOperation", Message: "You are not authorized."}}
				}
				return awsfake.Fault{}
			}))
			_, err := w.publisher(t).Publish(t.Context(), request(t, file))
			if err == nil || !strings.Contains(err.Error(), "hardtack image policy") {
				t.Errorf("it ended with %v", err)
			}
			w.only(t)
		})
	}
}

// The services are slow to know of new things, refuse every second call, lose answers, and break down now and then:
// the image is the same in the end.
func TestTroubleThatPasses(t *testing.T) {
	file := makeDisk(t, 64*mib, "one", 0, 1, 2, 3, 9, 20, 40, 41, 42, 43, 44, 45, 60)
	for name, c := range map[string]struct {
		options awsfake.Options
		faults  func(awsfake.Call) awsfake.Fault
	}{
		"throttled":        {slow(), every(2, awsfake.Fault{Refuse: awsfake.Throttled()})},
		"too many at once": {slow(), every(3, awsfake.Fault{Refuse: &awsfake.Error{Status: 400, Code: "ConcurrentLimitExceededException", Message: "Too many."}})},
		"still written":    {slow(), every(3, awsfake.Fault{Refuse: &awsfake.Error{Status: 400, Code: "ValidationException", Reason: "CONFLICTING_BLOCK_UPDATE", Message: "Conflict."}}, "PutSnapshotBlock")},
		"unavailable":      {slow(), every(3, awsfake.Fault{Refuse: awsfake.Unavailable()})},
		"answers lost":     {slow(), every(3, awsfake.Fault{LoseReply: true})},
		"not known yet":    {awsfake.Options{EBS: awsfake.EBSOptions{Known: 100 * time.Millisecond, Seal: time.Millisecond}}, nil},
		"descriptions lag": {awsfake.Options{EC2: awsfake.EC2Options{Lag: 50 * time.Millisecond}, EBS: awsfake.EBSOptions{Seal: time.Millisecond}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.options)
			w.options.Attempts, w.options.Pause = 40, 50*time.Millisecond
			if c.faults != nil {
				w.account.SetFaults(awsfake.FaultFunc(c.faults))
			}
			r := w.publish(t, file)
			w.account.SetFaults(nil)
			w.holds(t, r.Snapshot, file)
			w.only(t, r.Image)
			if r.SentBlocks != 14 {
				t.Errorf("%d blocks were sent", r.SentBlocks)
			}
		})
	}
}

// every has a fault befall every n-th call of each action, or of these.
func every(n int, f awsfake.Fault, actions ...string) func(awsfake.Call) awsfake.Fault {
	return func(c awsfake.Call) awsfake.Fault {
		if c.Number%n == 1 && (len(actions) == 0 || slices.Contains(actions, c.Action)) {
			return f
		}
		return awsfake.Fault{}
	}
}

// A block that is damaged on its way is sent again; where every one is, the publication ends.
func TestDamagedOnTheWay(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	for name, times := range map[string]int{"once": 1, "every time": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow())
			g := w.guard(t, &gate{})
			g.before = func(_ *http.Request, n int, action string, body []byte) ([]byte, error) {
				if action == "PutSnapshotBlock" && n <= times {
					body = slices.Clone(body)
					body[n%len(body)] ^= 1
				}
				return body, nil
			}
			r, err := w.publisher(t).Publish(t.Context(), request(t, file))
			if times > 1 {
				if !errors.Is(err, ami.ErrDamaged) {
					t.Errorf("it ended with %v", err)
				}
				w.only(t)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.holds(t, r.Snapshot, file)
			if puts := g.asked("PutSnapshotBlock"); puts != 5 {
				t.Errorf("%d requests for 4 blocks, one of them damaged", puts)
			}
		})
	}
}

// A connection on which nothing comes back is given up, and the call made again; where that is so for every one, the
// publication ends, and what there was of it is taken away.
func TestStalledConnection(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	for name, times := range map[string]int{"twice": 2, "every time": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, slow())
			w.options.Attempt, w.options.Attempts = 500*time.Millisecond, 4
			g := w.guard(t, &gate{})
			g.before = func(r *http.Request, n int, action string, body []byte) ([]byte, error) {
				if action == "PutSnapshotBlock" && n <= times {
					<-r.Context().Done() // until the client gives up
					return nil, errGone
				}
				return body, nil
			}
			r, err := w.publisher(t).Publish(t.Context(), request(t, file))
			if times > 2 {
				if err == nil {
					t.Error("it ended well")
				}
				w.only(t)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			w.holds(t, r.Snapshot, file)
		})
	}
}

// An image is shown some time after it was registered. It is taken away, or found, all the same.
func TestImageIsShownLate(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3)
	late := awsfake.Options{EC2: awsfake.EC2Options{Lag: 700 * time.Millisecond}}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, late)
		w.options.Attempts = 1000 // a snapshot that is missing may only not be shown yet
		ctx, cancel := context.WithCancel(t.Context())
		w.guard(t, &gate{after: func(_ int, action string) {
			if action == "RegisterImage" {
				cancel()
			}
		}})
		if _, err := w.publisher(t).Publish(ctx, request(t, file)); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		w.only(t)
	})
	t.Run("answer lost", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, late)
		w.options.Attempts = 1000
		w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
			return awsfake.Fault{LoseReply: c.Action == "RegisterImage" && c.Number == 1}
		}))
		r := w.publish(t, file)
		if r.Found {
			t.Errorf("%+v", r)
		}
		w.only(t, r.Image)
	})
	t.Run("by another", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, late)
		w.options.Attempts = 1000
		g := w.guard(t, &gate{})
		other := &world{account: w.account, url: w.url, state: t.TempDir(), options: w.options, credentials: w.credentials}
		g.before = func(_ *http.Request, n int, action string, body []byte) ([]byte, error) {
			if action == "RegisterImage" && n == 1 {
				other.publish(t, file)
			}
			return body, nil
		}
		r := w.publish(t, file)
		if !r.Found {
			t.Errorf("%+v", r)
		}
		w.only(t, r.Image)
	})
}

// A name that another image has is not ours to take.
func TestNameIsTaken(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3)
	w := newWorld(t, slow())
	r := w.publish(t, file)
	// The same image without its tags is another's.
	if _, err := w.machines().DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{r.Image}, Tags: []types.Tag{{Key: aws.String(ami.TagDigest)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.publisher(t).Publish(t.Context(), request(t, file)); !errors.Is(err, ami.ErrNameTaken) {
		t.Errorf("it ended with %v", err)
	}
	w.only(t, r.Image)
}

// With Keep, the next try goes on from where the first one failed; without it, nothing is there to go on from.
func TestKeep(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9, 20)
	w := newWorld(t, slow())
	w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action == "CompleteSnapshot" {
			return awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDeniedException", Message: "no"}}
		}
		return awsfake.Fault{}
	}))
	keep := func(r *ami.Request) { r.Keep = true }
	if _, err := w.publisher(t).Publish(t.Context(), request(t, file, keep)); err == nil {
		t.Fatal("it ended well")
	}
	w.account.SetFaults(nil)
	r := w.publish(t, file)
	if !r.Resumed || r.SentBlocks != 0 || w.account.Calls()["ebs:PutSnapshotBlock"] != 5 {
		t.Errorf("the second try: %+v", r)
	}
	w.holds(t, r.Snapshot, file)
	w.only(t, r.Image)
}

// A parent that AWS refuses is done without, unless it was named.
func TestParentRefused(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	for _, named := range []bool{false, true} {
		t.Run(fmt.Sprint("named=", named), func(t *testing.T) {
			w := newWorld(t, slow())
			parent := w.publish(t, file)
			other := makeDisk(t, 16*mib, "one", 0, 3)
			w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
				if c.Action == "StartSnapshot" && c.Number == 2 {
					return awsfake.Fault{Refuse: &awsfake.Error{Status: 400, Code: "ValidationException", Message: "The account is enabled for encryption by default."}}
				}
				return awsfake.Fault{}
			}))
			r, err := w.publisher(t).Publish(t.Context(), request(t, other, func(r *ami.Request) {
				if named {
					r.Parent = parent.Image
				}
			}))
			if named {
				if !errors.Is(err, ami.ErrParent) {
					t.Errorf("it ended with %v", err)
				}
				w.only(t, parent.Image)
				return
			}
			if err != nil || r.Parent != "" || r.SentBlocks != 3 {
				t.Fatalf("%+v, %v", r, err)
			}
			w.holds(t, r.Snapshot, other)
			w.only(t, parent.Image, r.Image)
		})
	}
}

// What cannot be a parent is passed over: it is encrypted otherwise, larger, or its manifest cannot be read. The next
// older one may do.
func TestWhatIsNoParent(t *testing.T) {
	w := newWorld(t, slow())
	key := w.account.SSM().AddKey("alias/images")
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	good := w.publish(t, file)
	writeBlocks(t, file, "two", 3)
	w.publish(t, file, func(r *ami.Request) { r.Key = key })
	w.publish(t, file, func(r *ami.Request) { r.Volume = 3 })
	damaged := w.publish(t, file, func(r *ami.Request) { r.Parent = ami.NoParent })
	g := w.guard(t, &gate{})
	g.before = func(r *http.Request, _ int, action string, body []byte) ([]byte, error) {
		if action == "GetSnapshotBlock" && strings.Contains(r.URL.Path, damaged.Snapshot) {
			return nil, errGone
		}
		return body, nil
	}
	writeBlocks(t, file, "three", 3)
	r := w.publish(t, file)
	if r.Parent != good.Snapshot || r.SentBlocks != 2 {
		t.Errorf("%+v", r)
	}
	w.holds(t, r.Snapshot, file)
}

// What AWS has ended in the meantime is begun anew.
func TestKeptTooLong(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3)
	w := newWorld(t, slow())
	w.account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action == "PutSnapshotBlock" && c.Number > 1 {
			return awsfake.Fault{Refuse: &awsfake.Error{Status: 403, Code: "AccessDeniedException", Message: "no"}}
		}
		return awsfake.Fault{}
	}))
	keep := func(r *ami.Request) { r.Keep = true }
	if _, err := w.publisher(t).Publish(t.Context(), request(t, file, keep)); err == nil {
		t.Fatal("it ended well")
	}
	w.account.SetFaults(nil)
	snapshot := w.account.Images().Snapshots()[0].ID
	if err := w.client(home).DeleteSnapshot(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	r := w.publish(t, file)
	if r.Resumed || r.Snapshot == snapshot {
		t.Errorf("the second try: %+v", r)
	}
	w.holds(t, r.Snapshot, file)
	w.only(t, r.Image)
}

// The disk is written to while it is published.
func TestDiskChangesMeanwhile(t *testing.T) {
	file := makeDisk(t, 16*mib, "one", 0, 3, 9)
	w := newWorld(t, slow())
	g := w.guard(t, &gate{})
	g.before = func(_ *http.Request, _ int, action string, body []byte) ([]byte, error) {
		if action == "StartSnapshot" {
			writeBlocks(t, file, "two", 9)
		}
		return body, nil
	}
	if _, err := w.publisher(t).Publish(t.Context(), request(t, file)); err == nil || !strings.Contains(err.Error(), "block 9 of the disk has changed") {
		t.Errorf("it ended with %v", err)
	}
	w.only(t)
}
