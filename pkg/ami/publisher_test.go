package ami

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// situation is what a publication meets: an account, and a directory for journals.
type situation struct {
	t *testing.T
	*account
	state  string
	change []func(*Request)
}

func (s *situation) publish(t *testing.T, d Disk, change ...func(*Request)) (Result, error) {
	t.Helper()
	r := requestOf(d)
	for _, f := range change {
		f(&r)
	}
	return s.publisher(t, s.state).Publish(t.Context(), r)
}

// must publishes, as another process would.
func (s *situation) must(t *testing.T, d Disk, change ...func(*Request)) Result {
	t.Helper()
	other := situation{account: s.account, state: t.TempDir()}
	r, err := other.publish(t, d, change...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// kept has a first try fail in this call, which leaves a journal.
func (s *situation) kept(t *testing.T, d Disk, call string) {
	t.Helper()
	s.before = breaks(call, 1)
	defer func() { s.before = nil }()
	if _, err := s.publish(t, d, keep); !errors.Is(err, errBroken) {
		t.Fatalf("%s fails: %v", call, err)
	}
	s.clean(t, "kept", true)
}

func keep(r *Request) { r.Keep = true }

// situations are all that a publication of this disk may meet.
func situations(d *memory) map[string]func(*situation) {
	older := disk("a.d")
	named := func(s *situation) func(*Request) {
		return func(r *Request) { r.Parent = s.images[len(s.images)-1].ID }
	}
	return map[string]func(*situation){
		"nothing":                 func(*situation) {},
		"an older image":          func(s *situation) { s.must(s.t, older) },
		"an older image, named":   func(s *situation) { s.must(s.t, older); s.change = append(s.change, named(s)) },
		"the same image":          func(s *situation) { s.must(s.t, d) },
		"the same, in the making": func(s *situation) { s.must(s.t, d); s.images[0].State = Pending },
		"a try that began":        func(s *situation) { s.kept(s.t, d, "Start") },
		"a try that sent a part":  func(s *situation) { s.kept(s.t, d, "Put 1") },
		"a try that sent all":     func(s *situation) { s.kept(s.t, d, "Complete") },
		"a try that waited":       func(s *situation) { s.kept(s.t, d, "WaitSnapshot") },
		"a try that completed":    func(s *situation) { s.kept(s.t, d, "Register") },
		"a try that registered":   func(s *situation) { s.kept(s.t, d, "WaitImage") },
		"a try, and the same image by another": func(s *situation) {
			s.kept(s.t, d, "Complete")
			s.must(s.t, d)
		},
		"a try that began, and the same image by another": func(s *situation) {
			s.kept(s.t, d, "Start")
			s.must(s.t, d)
		},
		"a try that completed, whose snapshot is gone": func(s *situation) {
			s.kept(s.t, d, "Register")
			clear(s.snapshots)
		},
		"a try that completed, whose snapshot has failed": func(s *situation) {
			s.kept(s.t, d, "Register")
			for _, snapshot := range s.snapshots {
				snapshot.state = Failed
			}
		},
		"a try whose snapshot is gone": func(s *situation) {
			s.kept(s.t, d, "Complete")
			clear(s.snapshots)
		},
		"another that registers it first": func(s *situation) {
			other := situation{account: newAccount(), state: s.t.TempDir()}
			other.must(s.t, d)
			s.before = once("Register", func() error {
				s.images = append(s.images, other.images...)
				s.snapshots[other.images[0].Snapshot] = other.snapshots[other.images[0].Snapshot]
				return nil
			})
		},
		"an answer that is lost": func(s *situation) {
			s.after = once("Register", func() error { return ErrNameTaken })
		},
	}
}

// once does something at the first call of this name.
func once(name string, do func() error) func(string) error {
	done := false
	return func(call string) error {
		if done || call != name {
			return nil
		}
		done = true
		return do()
	}
}

// Whatever a publication meets, it ends with one image of the disk, and nothing beside it. If any of its calls fails, it ends with
// that error, and nothing is left of it; the next one ends well.
func TestPublishWithAnyCallFailing(t *testing.T) {
	d := disk("ab.")
	var failed atomic.Bool
	for name, prepare := range situations(d) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := func() *situation {
				s := &situation{t: t, account: newAccount(), state: t.TempDir()}
				prepare(s)
				s.calls = nil
				return s
			}
			s := begin()
			s.publishes(t, d, "all is well")
			for n, call := range s.calls {
				if failed.Load() || t.Failed() {
					failed.Store(true)
					return // the others would say the same
				}
				s := begin()
				earlier := s.before
				s.before = func(call string) error {
					if len(s.calls) == n+1 {
						return errBroken
					}
					if earlier != nil {
						return earlier(call)
					}
					return nil
				}
				if name == "an older image" && (call == "List" || strings.HasPrefix(call, "Get ")) {
					s.publishes(t, d, "without the parent that cannot be read")
					continue
				}
				began := s.journal(t)
				r, err := s.publish(t, d, s.change...)
				if !errors.Is(err, errBroken) || r.Found != (r.Image != "") || r.Image == "" && r.Snapshot != "" {
					t.Errorf("%s, the call %d, fails: %+v, %v", call, n, r, err)
				}
				s.clean(t, fmt.Sprint(call, " failed"), began)
				s.before, s.after = nil, nil
				s.publishes(t, d, fmt.Sprint("again, after ", call, " failed"))
			}
		})
	}
}

// publishes publishes a disk, and checks that the image is of it, and the only one.
func (s *situation) publishes(t *testing.T, d *memory, when string) {
	t.Helper()
	r, err := s.publish(t, d, s.change...)
	if err != nil {
		t.Errorf("%s: %v", when, err)
		return
	}
	var image Image
	for _, i := range s.images {
		if i.ID == r.Image {
			image = i
		} else if i.Tags[TagDigest] == r.Digest.String() {
			t.Errorf("%s: there is another, %+v", when, i)
		}
	}
	if image.State != Available || image.Snapshot != r.Snapshot || image.Name != r.Name {
		t.Errorf("%s: the image is %+v", when, image)
		return
	}
	m, err := Scan(t.Context(), d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := append(bytes.Clone(d.content), m.Encode()...)
	got := make([]byte, len(want))
	for b, content := range s.snapshots[r.Snapshot].blocks {
		if int(b)*BlockSize >= len(got) {
			t.Errorf("%s: the snapshot has a block %d", when, b)
			continue
		}
		copy(got[int(b)*BlockSize:], content)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s: the snapshot is not the disk", when)
	}
	s.clean(t, when, false)
}

// journal reports whether there is one.
func (s *situation) journal(t *testing.T) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.state, "*.journal*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

// clean checks that each snapshot has an image or is in a journal, or its token; that there is none unless there was before; and that
// no file of the publication is open.
func (s *situation) clean(t *testing.T, when string, journal bool) {
	t.Helper()
	if s.journal(t) && !journal {
		t.Errorf("%s: a journal is left", when)
	}
	found, _ := filepath.Glob(filepath.Join(s.state, "*.journal"))
	var text []byte
	for _, name := range found {
		text, _ = os.ReadFile(name)
	}
	for id, snapshot := range s.snapshots {
		used := slices.ContainsFunc(s.images, func(i Image) bool { return i.Snapshot == id })
		if !used && !bytes.Contains(text, []byte(strconv.Quote(id))) && !bytes.Contains(text, []byte(snapshot.Token)) {
			t.Errorf("%s: snapshot %s is left, and nothing knows of it", when, id)
		}
	}
	files, _ := os.ReadDir("/proc/self/fd")
	for _, f := range files {
		if to, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(to, s.state) {
			t.Errorf("%s: %s is open", when, to)
		}
	}
}
