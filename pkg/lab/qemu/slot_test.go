package qemu

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wantRefused checks that an error is there and says a text.
func wantRefused(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want an error with %q", err, text)
	}
}

// A file is at one machine at a time, however that machine ends. Guests with an operating system are pkg/e2e's.
func TestDrivesArePluggedIn(t *testing.T) {
	ctx := t.Context()
	volume, other := writeDisk(t, []byte("data")), writeDisk(t, []byte("more"))
	machines := make([]*Machine, 2)
	for i := range machines {
		machines[i] = power(t, Config{Slots: 2, Disks: []Disk{{Path: writeDisk(t, bootSector("here\n", hang))}}})
		awaitOutput(t, machines[i], "here", 1)
	}
	one, two := machines[0], machines[1]
	if err := one.Attach(ctx, volume, "vol0123456789abcdef0"); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, one.Attach(ctx, other, "vol0123456789abcdef0"), "has a drive vol0123456789abcdef0")
	wantRefused(t, one.Attach(ctx, other, "vol-0123456789abcdef"), "is not a letter and")
	wantRefused(t, one.Attach(ctx, filepath.Join(t.TempDir(), "none"), "none"), "No such file")
	wantRefused(t, one.Detach(ctx, "none"), "no such drive")
	for range 2 { // what was refused has left nothing behind
		wantRefused(t, two.Attach(ctx, volume, "vol0123456789abcdef0"), `Failed to get "write" lock`)
	}
	if err := one.Attach(ctx, other, "other"); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, one.Attach(ctx, writeDisk(t, nil), "third"), "all 2 slots of the machine are in use")
	if err := syscall.Kill(one.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-one.Ended()
	if err := one.Detach(ctx, "other"); !errors.Is(err, errEnded) {
		t.Errorf("unplugging from a machine that has ended: %v", err)
	}
	if err := one.Attach(ctx, writeDisk(t, nil), "fourth"); err == nil {
		t.Error("a machine that has ended got a drive")
	}
	// Its data are free. This guest has no operating system: it never gives a drive up.
	if err := two.Attach(ctx, volume, "vol0123456789abcdef0"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		err := two.Detach(short, "vol0123456789abcdef0")
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unplugging from a guest that hangs: %v", err)
		}
	}
	wantRefused(t, two.Attach(ctx, other, "vol0123456789abcdef0"), "has a drive vol0123456789abcdef0")
}

// Events of other devices say nothing about a drive, and QEMU may send more than one of the same.
func TestDeletedDevices(t *testing.T) {
	s := slots{drive: make([]*drive, 2)}
	d := s.next("vol1")
	s.set(1, d)
	s.deleted("")
	s.deleted("vol2")
	select {
	case <-d.gone:
		t.Error("another device's end is taken for this one's")
	default:
	}
	s.deleted("vol1")
	s.deleted("vol1")
	<-d.gone
}
