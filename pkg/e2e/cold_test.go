package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/gpt"
	"github.com/hardtack/packer-plugin-hardtack/pkg/disk/qcow2"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// The machines of compareCluster, by the roles of their groups.
const (
	masterRoles = "masters, etcd"
	minionRoles = "minions"
)

// coldRun counts what machines read of their disks.
type coldRun struct {
	figures cold
	// traces has QEMU's trace of each machine by its process; out gets the figures, and the traces in out/cold.
	traces, out string
	files       coldFiles
}

// TestColdBytes counts what each role reads of its disk from power-on to ready, and what a machine of kubeadm's does: from the
// writable disk a master, a minion and a node of kubeadm's, from the sealed one a master and a minion, one machine at a time beside
// its master. It fails for no count: the table says which goals are missed.
func TestColdBytes(t *testing.T) {
	out := os.Getenv("HARDTACK_COLD")
	if out == "" {
		t.Skip("boots five machines: run scripts/bench-cold, or set HARDTACK_COLD to a directory")
	}
	sealed := os.Getenv(sealedVariable)
	if sealed == "" {
		t.Fatalf("%s names no disk with a sealed root: make sealed makes one", sealedVariable)
	}
	r := &coldRun{figures: cold{BlockSize: ami.BlockSize}, traces: t.TempDir(), out: out}
	r.trace(t)
	t.Run(writableDisk, func(t *testing.T) {
		c := startComparison(t)
		r.figures.Kubernetes = c.version
		r.master(t, c, writableDisk)
		c.allowKubeadm(t)
		c.leave(t, r.minion(t, c, writableDisk))
		m := c.launch(t, byKubeadm)
		r.add(t, c, kubeadmsDisk, minionRoles, m, map[string]time.Time{untilNodeReady: c.nodes.node(m.Name).ready})
	})
	t.Run(sealedDisk, func(t *testing.T) {
		path, err := filepath.Abs(sealed)
		if err != nil {
			t.Fatal(err)
		}
		c := &compared{image: filepath.Join(t.TempDir(), "image.qcow2"), disks: map[string]string{byHardtack: path}}
		c.start(t, "cold")
		r.master(t, c, sealedDisk)
		c.watch(t)
		r.minion(t, c, sealedDisk)
		r.files.write(t, sealedDisk, path, filepath.Join(out, "cold-files.txt"))
	})
}

// trace has the lab find a QEMU that traces the disks.
func (r *coldRun) trace(t *testing.T) {
	t.Helper()
	const name = "qemu-system-x86_64"
	real := need(t, name, "qemu-system-x86")
	text, err := os.ReadFile(filepath.Join("testdata", "cold", name))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := file.WriteProgram(filepath.Join(dir, name), bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HARDTACK_COLD_QEMU", real)
	t.Setenv("HARDTACK_COLD_TRACES", r.traces)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// master waits until the lab's master is ready, and counts.
func (r *coldRun) master(t *testing.T, c *compared, disk string) {
	t.Helper()
	m := c.saysReady(t, "masters")
	r.add(t, c, disk, masterRoles, m, map[string]time.Time{untilReady: readyAt(t, m)})
}

// minion powers one on, waits until it is ready, and counts.
func (r *coldRun) minion(t *testing.T, c *compared, disk string) lab.MachineStatus {
	t.Helper()
	m := c.saysReady(t, c.launch(t, byHardtack).ID)
	r.add(t, c, disk, minionRoles, m, map[string]time.Time{untilNodeReady: c.nodes.node(m.Name).ready, untilReady: readyAt(t, m)})
	return m
}

// saysReady waits until a machine, by its id or its group, has said that its roles work, and the lab is ready.
func (c *compared) saysReady(t *testing.T, name string) lab.MachineStatus {
	t.Helper()
	var m lab.MachineStatus
	c.until(t, name+" is ready", func(s lab.Status) bool {
		var err error
		m, err = s.Find(name)
		return err == nil && s.Ready && m.Phase() == timeline.PhaseReady
	})
	return m
}

// readyAt is when the machine said that its roles work.
func readyAt(t *testing.T, m lab.MachineStatus) time.Time {
	t.Helper()
	for _, reached := range m.Reached {
		if reached.Phase == timeline.PhaseReady {
			return m.PoweredOn.Add(time.Duration(reached.Seconds * float64(time.Second)))
		}
	}
	t.Fatalf("%s is not ready: %v", m.ID, m.Reached)
	return time.Time{}
}

// add counts a machine's reads up to each moment, keeps its trace, and writes the figures so far, since a later machine may fail.
func (r *coldRun) add(t *testing.T, c *compared, disk, roles string, m lab.MachineStatus, until map[string]time.Time) {
	t.Helper()
	kept := filepath.Join(r.out, "cold", disk+"-"+m.Group+".trace")
	if err := copyFile(kept, filepath.Join(r.traces, strconv.Itoa(m.PID))); err != nil {
		t.Fatal(err)
	}
	trace, err := os.Open(kept)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = trace.Close() }()
	accesses, err := readTrace(trace, filepath.Join(c.home.Dir, "machines", m.ID, lab.OverlayFile))
	if err != nil {
		t.Fatalf("%s: %v", m.ID, err)
	}
	table := partitions(t, c.image)
	for _, moment := range []string{untilNodeReady, untilReady} {
		at, ok := until[moment]
		if !ok {
			continue
		}
		count, blocks := countReads(accesses, at, table)
		if moment == untilReady {
			r.files.add(disk, roles, blocks)
		}
		counted := onEBS(disk, roles, moment, count)
		t.Logf("%+v", counted)
		// A boot reads both partitions, and no more than the disk has once.
		if counted.Partitions["root"] == 0 || counted.Partitions["esp"] == 0 || counted.Cold > counted.Bytes || counted.Cold > int64(counted.Blocks)*ami.BlockSize {
			t.Errorf("%s of %s: this was no boot: %+v", m.ID, disk, counted)
		}
		r.figures.Machines = append(r.figures.Machines, counted)
	}
	if err := r.figures.write(r.out); err != nil {
		t.Fatal(err)
	}
}

// partitions reads the table of a disk image.
func partitions(t *testing.T, image string) []gpt.Partition {
	t.Helper()
	d, err := qcow2.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	table, err := gpt.Read(d)
	if err != nil {
		t.Fatalf("%s: %v", image, err)
	}
	return table
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("looking for what QEMU has traced: %w", err)
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closing := out.Close(); err == nil {
		err = closing
	}
	return err
}
