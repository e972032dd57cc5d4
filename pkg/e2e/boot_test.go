package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

const (
	// atOnce is how many machines run side by side: each has 1 GiB and, under TCG, keeps a processor busy.
	atOnce = 2
	// quiet is how long a machine may print nothing before it counts as stuck. Firmware prints nothing and took
	// 5 s under TCG on a busy computer.
	quiet = 2 * time.Minute
	// bound is longer than any boot, even one that prints forever.
	bound = 15 * time.Minute
	// decideWithin is the latest time of the probe's report, in seconds of the machine. Units without a cluster fail
	// and are restarted, and units ordered after them wait: an emulated machine on a busy computer took 5 minutes.
	decideWithin = 8 * time.Minute
)

var slots = make(chan struct{}, atOnce)

// Booted is a machine that was booted, asked and switched off.
type Booted struct {
	*Report
	Console string
	// Firmware is the time between power-on and the kernel's first instruction.
	Firmware time.Duration
}

// Asked is the input of one boot: the disk (the baked image if it is empty), the machine, its user data as a credential (none if it is
// empty), and the units that have run before the machine is asked (if none, every unit of the image was decided about).
type Asked struct {
	Disk     string
	Machine  qemu.Config
	UserData string
	Until    []string
}

// boot boots the baked image and returns the report of its systemd. If the machine sends no report, the test fails and
// shows the console.
func boot(t *testing.T, a Asked) *Booted {
	t.Helper()
	c := a.Machine
	c.Name = "hardtack-e2e"
	c.Firmware = cmp.Or(c.Firmware, qemu.UEFI)
	disk := a.Disk
	if disk == "" {
		disk = image(t)
	}
	c.Disks = append([]qemu.Disk{{Path: disk, Format: "qcow2"}}, c.Disks...)
	asked := append(slices.Sorted(maps.Keys(loadUnits(t))), remountUnit, repartUnit, growUnit, lateUnit, modulesUnit)
	c.Credentials = Probe{Units: asked, Until: a.Until, Limit: decideWithin}.Credentials()
	if a.UserData != "" {
		c.Credentials["hardtack.userdata"] = []byte(a.UserData)
	}
	slots <- struct{}{}
	defer func() { <-slots }()
	fits(t, 30*time.Second)
	ctx, cancel := context.WithTimeout(interrupted, bound)
	defer cancel()
	b, err := ask(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.keepJournal(t)
		}
	})
	b.grown(t)
	b.devices(t)
	return b
}

const (
	remountUnit = "systemd-remount-fs.service"
	repartUnit  = "systemd-repart.service"
	growUnit    = "systemd-growfs-root.service"
	lateUnit    = "udev-trigger-late.service"
	modulesUnit = "modules-load-late.service"
)

// devices asserts that udev was told of the devices that nothing waits for, and modules were loaded that nothing waits for, and not
// before the reader of user data had begun. (Of a reader that was started again the manager has only the last start, but the first look at its conditions.)
func (b *Booted) devices(t *testing.T) {
	t.Helper()
	reader := b.Units["hardtack-userdata.service"]
	for _, name := range []string{lateUnit, modulesUnit} {
		late := b.Units[name]
		if late.Result != "success" || late.Exited == 0 || reader.Conditioned == 0 || late.Started < reader.Conditioned {
			t.Errorf("%s %+v, and the reader of user data %+v: want it well, and after the reader", name, late, reader)
		}
	}
}

// keepJournal writes the whole journal into a file and logs its end: the test's own words stay in sight.
func (b *Booted) keepJournal(t *testing.T) {
	t.Helper()
	file := filepath.Join(root, "build", strings.ReplaceAll(t.Name(), "/", "-")+".journal")
	if err := os.WriteFile(file, []byte(b.Journal), 0o600); err != nil {
		t.Error(err)
		return
	}
	lines := strings.Split(strings.TrimSpace(b.Journal), "\n")
	t.Logf("the machine's journal is %s; its end:\n%s", file, strings.Join(lines[max(0, len(lines)-10):], "\n"))
}

// grown asserts that the root partition and then its file system grew, and not before the reader of user data had begun, and that
// nothing has mounted the root again: the kernel mounts it for writing.
func (b *Booted) grown(t *testing.T) {
	t.Helper()
	remount, repart, grow, reader := b.Units[remountUnit], b.Units[repartUnit], b.Units[growUnit], b.Units["hardtack-userdata.service"]
	if remount.Activated > 0 {
		t.Errorf("%s %+v: want it masked", remountUnit, remount)
	}
	if strings.Contains(b.Console, sealed.Argument+"=") {
		// A sealed root is never written to, and its disk was partitioned before systemd started.
		if repart.Activated > 0 || grow.Activated > 0 {
			t.Errorf("%s %+v, and %s %+v: on a sealed root they have nothing to do", repartUnit, repart, growUnit, grow)
		}
		return
	}
	if repart.Result != "success" || repart.Exited == 0 || reader.Conditioned == 0 || repart.Started < reader.Conditioned {
		t.Errorf("%s %+v, and the reader of user data %+v: want it well, and after the reader", repartUnit, repart, reader)
	}
	if grow.Result != "success" || grow.Started < repart.Exited {
		t.Errorf("%s %+v, and %s %+v: want the one well, and after the other", growUnit, grow, repartUnit, repart)
	}
}

func ask(ctx context.Context, c qemu.Config) (b *Booted, err error) {
	m, err := qemu.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	var sinceStart time.Duration
	err = m.Await(ctx, quiet, func() bool {
		if sinceStart == 0 && m.Channel().Contains("@end uptime") {
			sinceStart = time.Since(m.Started())
		}
		return m.Channel().Contains(lastFrame)
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the machine's report: %w\nwhat it has told:\n%s", err, m.Channel().Tail(20))
	}
	r, err := ParseReport(m.Channel().String())
	if err != nil {
		return nil, err
	}
	return &Booted{Report: r, Console: m.Console().String(), Firmware: sinceStart - r.Uptime}, nil
}

// loadUnits returns the units that are baked into the image, by name.
func loadUnits(t *testing.T) map[string]unit.Unit {
	t.Helper()
	list, problems := unit.Load(units.FS)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	byName := map[string]unit.Unit{}
	for _, u := range list {
		byName[u.Name] = u
	}
	return byName
}

// noCycle asserts that systemd found no ordering cycle. systemd breaks a cycle by deleting a start job: the boot then
// looks good, but a unit is missing.
func (b *Booted) noCycle(t *testing.T) {
	t.Helper()
	for _, text := range []string{"ordering cycle", "deleted to break"} {
		for where, lines := range map[string]string{"console": b.Console, "journal": b.Journal} {
			for line := range strings.Lines(lines) {
				if strings.Contains(line, text) {
					t.Errorf("%s: %s", where, strings.TrimSpace(line))
				}
			}
		}
	}
}

// cutOff asserts that the machine had no network, and so fetched nothing.
func (b *Booted) cutOff(t *testing.T) {
	t.Helper()
	if !slices.Equal(b.Interfaces, []string{"lo"}) {
		t.Errorf("network interfaces %v, want only lo", b.Interfaces)
	}
}
