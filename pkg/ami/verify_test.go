package ami

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// Of an image of the same disk, each block is read and compared, whatever its tags and its manifest say.
func TestVerify(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(a *account, i *Image)
		good   bool
	}{
		{"it is", func(*account, *Image) {}, true},
		{"with blocks of zeros", func(a *account, i *Image) {
			a.snapshots[i.Snapshot].blocks[2], a.snapshots[i.Snapshot].blocks[9] = block('.'), block('.')
		}, true},
		{"a block more", func(a *account, i *Image) { a.snapshots[i.Snapshot].blocks[2] = block('x') }, false},
		{"a block behind its manifest", func(a *account, i *Image) { a.snapshots[i.Snapshot].blocks[9] = block('x') }, false},
		{"a block less", func(a *account, i *Image) { delete(a.snapshots[i.Snapshot].blocks, 1) }, false},
		{"no manifest", func(a *account, i *Image) { delete(a.snapshots[i.Snapshot].blocks, 4) }, false},
		{"another block", func(a *account, i *Image) {
			b := a.snapshots[i.Snapshot].blocks
			b[1] = bytes.Clone(b[1])
			b[1][BlockSize-1] ^= 1
		}, false},
		{"another manifest", func(a *account, i *Image) {
			b := a.snapshots[i.Snapshot].blocks
			b[4] = bytes.Clone(b[4])
			b[4][BlockSize-1] ^= 1
		}, false},
		{"another architecture", func(_ *account, i *Image) { i.Architecture = "arm64" }, false},
		{"another volume", func(_ *account, i *Image) { i.Volume = 2 }, false},
		{"two disks", func(_ *account, i *Image) { i.Disks = 2 }, false},
	} {
		s := situation{account: newAccount(), state: t.TempDir()}
		s.must(t, disk("ab.d"))
		c.change(s.account, &s.images[0])
		s.calls = nil
		r, err := s.publish(t, disk("ab.d"))
		if c.good != (err == nil) || r.Found != c.good || !c.good && !errors.Is(err, errForeign) || slices.Contains(s.calls, "Register") {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
}

// An image in the making is waited for, and then looked at again, since its snapshot may not have been shown.
func TestImageInTheMaking(t *testing.T) {
	s := situation{account: newAccount(), state: t.TempDir()}
	first := s.must(t, disk("ab.d"))
	s.images[0].State, s.images[0].Snapshot = Pending, ""
	s.after = once("WaitImage", func() error { s.images[0].Snapshot = first.Snapshot; return nil })
	if r, err := s.publish(t, disk("ab.d")); err != nil || r.Image != first.Image || r.Snapshot != first.Snapshot {
		t.Errorf("%+v, %v", r, err)
	}
	// Meanwhile it goes, and another of the same digest is there.
	s.images[0].State = Pending
	s.after = once("WaitImage", func() error { s.images[0].ID = "ami-other"; return nil })
	if r, err := s.publish(t, disk("ab.d")); err == nil {
		t.Errorf("it has gone: %+v", r)
	}
}
