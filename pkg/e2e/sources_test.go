package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestFirmware boots the image with UEFI and with BIOS, and user data from a NoCloud volume. The other tests boot with
// UEFI, and a credential.
func TestFirmware(t *testing.T) {
	t.Parallel()
	needMachines(t)
	for _, c := range []struct {
		name     string
		firmware qemu.Firmware
		roles    role.Set
	}{
		{"UEFI", qemu.UEFI, role.NewSet(role.Etcd)},
		{"BIOS", qemu.BIOS, role.NewSet(role.Minions)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			seed := seedVolume(t, cloudConfig(roleFiles(c.roles)))
			b := boot(t, Asked{Machine: qemu.Config{Firmware: c.firmware, Disks: []qemu.Disk{{Path: seed}}}})
			figures.add(c.name+", NoCloud volume", b)
			b.noCycle(t)
			b.cutOff(t)
			b.startedFor(t, c.roles)
		})
	}
}

// seedVolume makes a volume from which NoCloud machines read their user data: ISO 9660, labelled cidata.
func seedVolume(t *testing.T, userData string) string {
	t.Helper()
	xorriso := need(t, "xorriso", "xorriso")
	dir := t.TempDir()
	for name, text := range map[string]string{"user-data": userData, "meta-data": "instance-id: i-nocloud\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	iso := filepath.Join(t.TempDir(), "seed.iso")
	err := run.Run(t.Context(), run.Command{Name: xorriso, Args: []string{
		"-as", "mkisofs", "-quiet", "-volid", "cidata", "-joliet", "-rational-rock", "-output", iso, dir,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return iso
}

// TestNetworkChangesNothing boots a machine with a network: the same units start as without one.
func TestNetworkChangesNothing(t *testing.T) {
	t.Parallel()
	needMachines(t)
	roles := role.NewSet(role.Masters, role.Minions)
	b := boot(t, Asked{
		Machine:  qemu.Config{Network: qemu.Network{Kind: qemu.User, Isolated: true}},
		UserData: cloudConfig(roleFiles(roles)),
	})
	figures.add(roles.String()+", with a network", b)
	b.noCycle(t)
	b.startedFor(t, roles)
	if len(b.Interfaces) < 2 {
		t.Errorf("network interfaces %v, want lo and a card", b.Interfaces)
	}
}
