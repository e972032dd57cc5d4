package lab

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// holding waits until a machine of the member's group has its volume, and returns both.
func holding(t *testing.T, c *Client, not string) (MachineStatus, VolumeStatus) {
	t.Helper()
	var m MachineStatus
	until(t, c, "a master serves and has its volume", func(s Status) bool {
		var err error
		m, err = s.Find("masters-a")
		return err == nil && m.Volume != "" && m.ID != not && m.Lifecycle == "InService"
	})
	return m, theVolume(t, c, m.Volume)
}

func theVolume(t *testing.T, c *Client, id string) VolumeStatus {
	t.Helper()
	list, err := c.Volumes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(v VolumeStatus) bool { return v.ID == id })
	if i < 0 {
		t.Fatalf("there is no volume %s: %+v", id, list)
	}
	return list[i]
}

// locked reports whether a machine has a volume's file.
func locked(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

func mark(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("data"), 1<<20)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// marked returns what is where mark writes.
func marked(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 1<<20); err != nil {
		t.Fatal(err)
	}
	return got
}

// A volume moves from a killed machine to the next with its content, and can be wiped while no machine has it.
func TestVolumeOutlivesItsMachine(t *testing.T) {
	t.Parallel()
	home, c := up(t, planned(t))
	first, v := holding(t, c, "")
	file := home.path(volumesDir, v.ID+".raw")
	if v.Machine != first.ID || v.State != "in-use" || v.Attachment != "attached" || v.Member != "a" || v.Bytes != 20<<30 || v.Used > 1<<20 {
		t.Errorf("the volume is %+v", v)
	}
	if !locked(t, file) {
		t.Error("the volume's file is in no machine")
	}
	mark(t, file)
	if err := c.WipeVolume(t.Context(), v.ID); err == nil || !strings.Contains(err.Error(), "only a volume that no machine has can be wiped") {
		t.Errorf("wiping a volume that a machine has: %v", err)
	}
	if err := c.Kill(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	second, moved := holding(t, c, first.ID)
	if moved.ID != v.ID || moved.Machine != second.ID || !bytes.Equal(marked(t, file), []byte("data")) {
		t.Errorf("the next master has %+v with %q, want %s with its data", moved, marked(t, file), v.ID)
	}
	if err := c.Scale(t.Context(), "masters-a", 0); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the volume is free", func(Status) bool { return theVolume(t, c, v.ID).State == "available" })
	if locked(t, file) {
		t.Error("a machine that has ended has the volume's file")
	}
	if err := c.WipeVolume(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	if now := theVolume(t, c, v.ID); !bytes.Equal(marked(t, file), make([]byte, 4)) || now.Used != 0 || now.Bytes != 20<<30 {
		t.Errorf("the wiped volume has %q: %+v", marked(t, file), now)
	}
	for name, err := range map[string]error{"wiping": c.WipeVolume(t.Context(), "vol-none"), "losing": c.LoseVolume(t.Context(), "vol-none")} {
		if err == nil || !strings.Contains(err.Error(), "there is no volume vol-none") {
			t.Errorf("%s what there is not: %v", name, err)
		}
	}
}

// The account's volumes have files whoever makes them, and a person can move one between running machines.
func TestVolumesOfTheAccount(t *testing.T) {
	t.Parallel()
	home, c := up(t, planned(t))
	_, v := holding(t, c, "")
	s := until(t, c, "both minions serve", inService("minions", 2))
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	api := ec2.NewFromConfig(ownerOf(at))
	made, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: &at.Zones[0], Size: aws.Int32(3), VolumeType: types.VolumeTypeGp3})
	if err != nil {
		t.Fatal(err)
	}
	id := *made.VolumeId
	file := home.path(volumesDir, id+".raw")
	until(t, c, "the new volume has a file", func(Status) bool { info, err := os.Stat(file); return err == nil && info.Size() == 3<<30 })
	// Somebody else has the file at first: the volume is attached once it can be.
	other, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(other.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, func() { _ = other.Close() })
	var minions []string
	for _, m := range s.Machines {
		if m.Group == "minions" {
			minions = append(minions, m.ID)
		}
	}
	for _, machine := range minions {
		if _, err := api.AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: &id, InstanceId: &machine, Device: aws.String("/dev/sdg")}); err != nil {
			t.Fatal(err)
		}
		until(t, c, "the minion has the volume", func(s Status) bool { m, err := s.Find(machine); return err == nil && m.Volume == id })
		if !locked(t, file) {
			t.Error("an attached volume's file is in no machine")
		}
		if _, err := api.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: &id}); err != nil {
			t.Fatal(err)
		}
		until(t, c, "the volume is free", func(Status) bool { return theVolume(t, c, id).State == "available" })
		if locked(t, file) {
			t.Error("a detached volume's file is still in a machine")
		}
	}
	if _, err := api.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &id, Size: aws.Int32(5)}); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the file has grown", func(Status) bool { info, err := os.Stat(file); return err == nil && info.Size() == 5<<30 })
	if _, err := api.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
		t.Fatal(err)
	}
	gone := func(path string) func(Status) bool {
		return func(Status) bool { _, err := os.Stat(path); return os.IsNotExist(err) }
	}
	until(t, c, "the deleted volume's file is gone", gone(file))
	if err := c.LoseVolume(t.Context(), v.ID); err != nil {
		t.Fatal(err)
	}
	until(t, c, "the lost volume's file is gone", gone(home.path(volumesDir, v.ID+".raw")))
	if list, err := c.Volumes(t.Context()); err != nil || slices.ContainsFunc(list, func(x VolumeStatus) bool { return x.ID == v.ID }) {
		t.Errorf("the volumes are %+v, %v", list, err)
	}
	if m, _ := mustStatus(t, c).Find("masters-a"); m.Power != "on" {
		t.Errorf("the machine that has lost its volume: %+v", m)
	}
}

func mustStatus(t *testing.T, c *Client) Status {
	t.Helper()
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}
