// Package storetest is the conformance suite of stores.
//
// Its rule: a scenario tests what callers rely on, and not how a store does it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// Subject gives access to one empty store.
type Subject struct {
	Store store.Store
	// Again is the same store as another process opens it.
	Again store.Store
	// Stranger is the same store without permission; nil if the store under test has no permissions.
	Stranger store.Store
	// Gone is a store that cannot be reached.
	Gone store.Store
}

// The objects of the scenarios: a secret, and a public one.
const (
	secret = pki.KubernetesCA + pki.Key
	public = pki.PublicKubernetes
)

// Run runs the suite; fresh returns a new, empty store for each scenario.
func Run(t *testing.T, fresh func(t *testing.T) Subject) {
	t.Helper()
	for _, sc := range []struct {
		name string
		run  func(*testing.T, Subject)
	}{
		{"what is not there is not found", notFound},
		{"what is created is read, by another process too", created},
		{"many are read at once, and what is not there is left out", many},
		{"nothing is created twice", twice},
		{"one of many at once creates", concurrent},
		{"what is put is replaced whole", replaced},
		{"what has changed is not swapped", swapped},
		{"one of many at once swaps", swappedAtOnce},
		{"every byte of a PEM file comes back", exact},
		{"what is listed is below the directory", listed},
		{"what is deleted is gone", deleted},
		{"a path out of the store is refused", outside},
		{"who has given up changes nothing", cancelled},
		{"no permission", forbidden},
		{"out of reach", unreachable},
	} {
		t.Run(sc.name, func(t *testing.T) { sc.run(t, fresh(t)) })
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	for _, one := range []error{pki.ErrNotFound, pki.ErrForbidden, pki.ErrExists, pki.ErrChanged, pki.ErrUnreachable} {
		if got := errors.Is(err, one); got != (want != nil && errors.Is(want, one)) {
			t.Errorf("%v: matches %q: %v", err, one, got)
		}
	}
	if want == nil && err != nil {
		t.Fatalf("unexpected: %v", err)
	}
}

func get(t *testing.T, s store.Store, object, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is %q, want %q", object, got, want)
	}
}

func notFound(t *testing.T, s Subject) {
	// Put an object into the store first: the root of an empty one may not exist.
	is(t, s.Store.Create(t.Context(), public, []byte("here")), nil)
	_, err := s.Store.Get(t.Context(), secret)
	is(t, err, pki.ErrNotFound)
	if err == nil || !strings.Contains(err.Error(), secret) {
		t.Errorf("the error does not name the object: %v", err)
	}
}

func created(t *testing.T, s Subject) {
	for _, object := range []string{secret, public, pki.BootstrapToken} {
		is(t, s.Store.Create(t.Context(), object, []byte("content of "+object)), nil)
		get(t, s.Store, object, "content of "+object)
		get(t, s.Again, object, "content of "+object)
	}
}

func many(t *testing.T, s Subject) {
	var objects []string
	for i := range 23 {
		object := fmt.Sprintf("public/many-%02d", i)
		if i%3 == 0 {
			object = fmt.Sprintf("masters/many-%02d", i)
		}
		objects = append(objects, object)
		if i != 4 && i != 21 {
			is(t, s.Store.Create(t.Context(), object, []byte("content of "+object)), nil)
		}
	}
	got, err := s.Again.GetAll(t.Context(), objects...)
	is(t, err, nil)
	if len(got) != len(objects)-2 {
		t.Errorf("%d objects, want %d", len(got), len(objects)-2)
	}
	for object, content := range got {
		if string(content) != "content of "+object {
			t.Errorf("%s is %q", object, content)
		}
	}
	none, err := s.Store.GetAll(t.Context())
	is(t, err, nil)
	if len(none) != 0 {
		t.Errorf("of no objects there are %v", none)
	}
	if _, err = s.Store.GetAll(t.Context(), objects[0], "../"+secret); err == nil {
		t.Error("a path out of the store is read")
	}
	_, err = s.Gone.GetAll(t.Context(), secret, public)
	is(t, err, pki.ErrUnreachable)
	if s.Stranger != nil {
		_, err = s.Stranger.GetAll(t.Context(), objects[0], objects[3])
		is(t, err, pki.ErrForbidden)
	}
}

func twice(t *testing.T, s Subject) {
	is(t, s.Store.Create(t.Context(), secret, []byte("first")), nil)
	is(t, s.Again.Create(t.Context(), secret, []byte("second")), pki.ErrExists)
	get(t, s.Store, secret, "first")
}

func concurrent(t *testing.T, s Subject) {
	const callers = 8
	var won atomic.Int32
	winner := make(chan string, callers)
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			content := fmt.Sprintf("caller %d", i)
			err := s.Store.Create(t.Context(), secret, []byte(content))
			switch {
			case err == nil:
				won.Add(1)
				winner <- content
			case !errors.Is(err, pki.ErrExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Fatalf("%d callers created it", won.Load())
	}
	get(t, s.Again, secret, <-winner)
}

func swapped(t *testing.T, s Subject) {
	is(t, s.Store.Create(t.Context(), public, []byte("here")), nil)
	is(t, s.Store.Swap(t.Context(), secret, nil, []byte("new")), pki.ErrNotFound)
	is(t, s.Store.Create(t.Context(), secret, []byte("first")), nil)
	is(t, s.Again.Swap(t.Context(), secret, []byte("first"), []byte("second")), nil)
	is(t, s.Store.Swap(t.Context(), secret, []byte("first"), []byte("third")), pki.ErrChanged)
	get(t, s.Store, secret, "second")
	if s.Stranger != nil {
		is(t, s.Stranger.Swap(t.Context(), secret, []byte("second"), []byte("mine")), pki.ErrForbidden)
		get(t, s.Store, secret, "second")
	}
}

// swappedAtOnce: whoever is told that it has swapped is the only one.
func swappedAtOnce(t *testing.T, s Subject) {
	is(t, s.Store.Create(t.Context(), secret, []byte("first")), nil)
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			err := s.Store.Swap(t.Context(), secret, []byte("first"), fmt.Appendf(nil, "caller %d", i))
			if err == nil {
				won.Add(1)
			} else if !errors.Is(err, pki.ErrChanged) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if won.Load() != 1 {
		t.Errorf("%d callers have swapped it", won.Load())
	}
}

// replaced reads during writes: a reader never sees a part, or nothing.
func replaced(t *testing.T, s Subject) {
	versions := [][]byte{bytes.Repeat([]byte("a"), 3000), bytes.Repeat([]byte("b"), 2000)}
	is(t, s.Store.Put(t.Context(), pki.BootstrapToken, versions[0]), nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 10 {
			if err := s.Store.Put(t.Context(), pki.BootstrapToken, versions[(i+1)%2]); err != nil {
				t.Error(err)
			}
		}
	}()
	for reading := true; reading; {
		select {
		case <-done:
			reading = false
		default:
		}
		got, err := s.Again.Get(t.Context(), pki.BootstrapToken)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, versions[0]) && !bytes.Equal(got, versions[1]) {
			t.Fatalf("read %d bytes that nobody wrote", len(got))
		}
	}
	get(t, s.Again, pki.BootstrapToken, string(versions[0]))
}

// listed: names that begin alike are of no other directory, and a directory that is not there is empty.
func listed(t *testing.T, s Subject) {
	const dir = "minions/registries/"
	is(t, s.Store.Create(t.Context(), "minions/registries-old", []byte("x")), nil)
	none, err := s.Store.List(t.Context(), dir)
	is(t, err, nil)
	if len(none) > 0 {
		t.Errorf("nothing is below %s, and listed are %v", dir, none)
	}
	var want []string
	for i := range 13 { // more than a page
		want = append(want, fmt.Sprintf("%sr%02d.example.org_5000", dir, i))
		is(t, s.Store.Create(t.Context(), want[i], []byte("secret")), nil)
	}
	got, err := s.Again.List(t.Context(), dir)
	is(t, err, nil)
	if !slices.Equal(got, want) {
		t.Errorf("listed are %v, want %v", got, want)
	}
	_, err = s.Gone.List(t.Context(), dir)
	is(t, err, pki.ErrUnreachable)
	if s.Stranger != nil {
		_, err = s.Stranger.List(t.Context(), dir)
		is(t, err, pki.ErrForbidden)
	}
}

// deleted: the object alone is gone, and can be created again.
func deleted(t *testing.T, s Subject) {
	is(t, s.Store.Create(t.Context(), public, []byte("here")), nil)
	is(t, s.Store.Delete(t.Context(), secret), pki.ErrNotFound)
	is(t, s.Store.Create(t.Context(), secret, []byte("first")), nil)
	is(t, s.Store.Put(t.Context(), secret, []byte("second")), nil)
	if s.Stranger != nil {
		is(t, s.Stranger.Delete(t.Context(), secret), pki.ErrForbidden)
	}
	is(t, s.Again.Delete(t.Context(), secret), nil)
	_, err := s.Store.Get(t.Context(), secret)
	is(t, err, pki.ErrNotFound)
	get(t, s.Store, public, "here")
	is(t, s.Store.Create(t.Context(), secret, []byte("third")), nil)
	get(t, s.Again, secret, "third")
}

func cancelled(t *testing.T, s Subject) {
	is(t, s.Store.Create(t.Context(), secret, []byte("old")), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for doing, err := range map[string]error{
		"creating": s.Store.Create(ctx, public, []byte("new")),
		"putting":  s.Store.Put(ctx, secret, []byte("new")),
		"swapping": s.Store.Swap(ctx, secret, []byte("old"), []byte("new")),
		"deleting": s.Store.Delete(ctx, secret),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", doing, err)
		}
	}
	get(t, s.Again, secret, "old")
	_, err := s.Again.Get(t.Context(), public)
	is(t, err, pki.ErrNotFound)
}

func exact(t *testing.T, s Subject) {
	const content = "-----BEGIN X-----\nAA==\n-----END X-----\n"
	is(t, s.Store.Create(t.Context(), secret, []byte(content)), nil)
	get(t, s.Again, secret, content)
}

func outside(t *testing.T, s Subject) {
	for _, object := range []string{"", ".", "/etc/passwd", "../x", "masters/../../x", "masters//x", "masters/"} {
		if _, err := s.Store.Get(t.Context(), object); err == nil || !strings.Contains(err.Error(), "not a path") {
			t.Errorf("reading %q: %v", object, err)
		}
		if err := s.Store.Create(t.Context(), object, []byte("x")); err == nil || !strings.Contains(err.Error(), "not a path") {
			t.Errorf("creating %q: %v", object, err)
		}
		if err := s.Store.Put(t.Context(), object, []byte("x")); err == nil || !strings.Contains(err.Error(), "not a path") {
			t.Errorf("writing %q: %v", object, err)
		}
		if err := s.Store.Delete(t.Context(), object); err == nil || !strings.Contains(err.Error(), "not a path") {
			t.Errorf("deleting %q: %v", object, err)
		}
	}
}

func forbidden(t *testing.T, s Subject) {
	if s.Stranger == nil {
		t.Skip("this store refuses nobody who runs as root")
	}
	is(t, s.Store.Create(t.Context(), secret, []byte("secret")), nil)
	_, err := s.Stranger.Get(t.Context(), secret)
	is(t, err, pki.ErrForbidden)
	is(t, s.Stranger.Put(t.Context(), secret, []byte("x")), pki.ErrForbidden)
	is(t, s.Stranger.Create(t.Context(), pki.EncryptionKey, []byte("x")), pki.ErrForbidden)
	get(t, s.Store, secret, "secret")
}

func unreachable(t *testing.T, s Subject) {
	_, err := s.Gone.Get(t.Context(), secret)
	is(t, err, pki.ErrUnreachable)
}
