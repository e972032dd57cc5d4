package boot

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
)

const hardwareID = "0dd7d1c4-0000-4000-8000-0123456789ab"

// hardware is a machine outside EC2 that says which it is.
var hardware = tree{"sys/class/dmi/id/sys_vendor": "QEMU\n", "sys/class/dmi/id/product_uuid": hardwareID + "\n"}

// plant labels a volume cidata, as a pod can that has a raw block volume: its user data makes the machine a master.
func plant(t *testing.T, root string) {
	t.Helper()
	tree{"dev/disk/by-label/CIDATA": "-> " + volume(t, "fat12", tree{"user-data": masters, "meta-data": "instance-id: i-new\n"})}.put(t, root)
}

// reboot runs the reader again, and returns its log.
func reboot(t *testing.T, root string) (Report, string, error) {
	t.Helper()
	var log bytes.Buffer
	o := options(root, &service{})
	o.Log = slog.New(slog.NewTextHandler(&log, nil))
	report, err := Run(t.Context(), o)
	return report, log.String(), err
}

// TestPodsVolume is the attack of a pod that labels its volume cidata: the next boot obeys the machine's own user data.
func TestPodsVolume(t *testing.T) {
	root := hardware.with(tree{fileSource: minions}).make(t)
	mustRun(t, root)
	plant(t, root)
	report, log, err := reboot(t, root)
	if err != nil || report.Source != sourceFile || report.Roles.String() != "minions" {
		t.Errorf("after a pod has made a volume cidata: roles %s from %s, %v", report.Roles, report.Source, err)
	}
	if !strings.Contains(log, "the volume is not read again") {
		t.Errorf("the log does not say so:\n%s", log)
	}
}

// firstVolume is a machine that has booted with user data of a volume, which was read from a device.
func firstVolume(t *testing.T) string {
	t.Helper()
	root := hardware.make(t)
	a := newAgent(options(root, &service{}))
	result, _ := userdata.Parse([]byte(minions+"- {path: /run/of-this-boot, content: x}\n"), nil)
	found := foundData{source: sourceVolume, from: "/dev/vdb", data: []byte(minions + "- {path: /run/of-this-boot, content: x}\n"), instanceID: "i-volume"}
	if err := a.apply(t.Context(), &Report{}, result, state{}, found); err != nil {
		t.Fatal(err)
	}
	return root
}

// TestVolumeAgain reboots a machine whose roles a volume gave: it stays what it is, with the volume or without it, and
// with one that says something else.
func TestVolumeAgain(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, root string){
		"without the volume": func(t *testing.T, root string) { t.Helper() },
		"with another":       plant,
	} {
		t.Run(name, func(t *testing.T) {
			root := firstVolume(t)
			change(t, root)
			if err := os.RemoveAll(filepath.Join(root, "run")); err != nil { // it is in memory
				t.Fatal(err)
			}
			report, log, err := reboot(t, root)
			if err != nil || report.Source != sourceVolume || report.Roles.String() != "minions" || report.InstanceID != "i-volume" {
				t.Errorf("%+v, %v", report, err)
			}
			if _, err := os.Stat(filepath.Join(root, "run/of-this-boot")); err != nil {
				t.Error(err)
			}
			if (name == "with another") != strings.Contains(log, "the volume is not read again") {
				t.Errorf("the log:\n%s", log)
			}
		})
	}
}

// TestVolumeRead is where the volume counts again: if the kernel command line names it, and on other hardware, which a
// copy of the disk is a new machine to. That it is read shows in that a file is no device to mount.
func TestVolumeRead(t *testing.T) {
	for name, change := range map[string]tree{
		"named":           {"proc/cmdline": "hardtack.userdata=credential,volume\n"},
		"on another host": {"sys/class/dmi/id/product_uuid": "1" + hardwareID[1:]},
	} {
		t.Run(name, func(t *testing.T) {
			root := firstVolume(t)
			change.put(t, root)
			plant(t, root)
			report, _, err := reboot(t, root)
			if err == nil || !strings.Contains(err.Error(), "volume: mounting ") || len(report.Roles) > 0 {
				t.Errorf("roles %s of %s, %v", report.Roles, report.Source, err)
			}
		})
	}
}

// TestVolumeCopy that is not what the first boot wrote is not used.
func TestVolumeCopy(t *testing.T) {
	root := firstVolume(t)
	if diff := cmp.Diff("100600 ", owned(t, root, "var/lib/hardtack/userdata.volume")[:7]); diff != "" {
		t.Errorf("mode -want +got %s", diff)
	}
	tree{"var/lib/hardtack/userdata.volume": masters}.put(t, root)
	if report, _, err := reboot(t, root); err == nil || !strings.Contains(err.Error(), "is not what the first boot wrote") || len(report.Roles) > 0 {
		t.Errorf("roles %s, %v", report.Roles, err)
	}
}
