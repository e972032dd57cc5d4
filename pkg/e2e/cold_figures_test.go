package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

// The disks whose cold reads are counted; kubeadm's is the writable one with kubeadm in it.
const (
	writableDisk = "writable"
	sealedDisk   = "sealed"
	kubeadmsDisk = "kubeadm"
)

// The moments up to which reads are counted: the Node's condition, and the machine's own word that each of its roles works.
const (
	untilNodeReady = "Node Ready"
	untilReady     = "ready"
)

// The goals: bytes that are read until a machine is ready, and of what kubeadm's machine reads until its Node is. They are compared
// with the cold bytes, which are what a snapshot has to deliver, and beside that with all reads.
const (
	coldMinion = 100e6
	coldMaster = 90e6
	coldShare  = 0.4
)

// The model of an EBS volume made from a snapshot. AWS names no latency of a block's first read, so that it is the latency of where
// the block comes from.
const (
	// touchBest and touchWorst bound what S3 takes until the first byte of an object: "roughly 100-200 milliseconds" (Amazon S3 User
	// Guide, "Optimizing performance"). Blocks are downloaded from there when they are first read (Amazon EBS User Guide,
	// "Initialize Amazon EBS volumes").
	touchBest  = 100 * time.Millisecond
	touchWorst = 200 * time.Millisecond
	// touchesAtOnce is how many reads are in flight where AWS initialises a volume (the same page: fio with iodepth=32). A machine
	// that boots waits for most reads before it makes the next.
	touchesAtOnce = 32
	// gp3Rate is what a gp3 volume transfers in a second, in bytes (the same guide, "General Purpose SSD volumes": 125 MiB/s).
	gp3Rate = 125 << 20
)

// cold is the result of a run of scripts/bench-cold.
type cold struct {
	Kubernetes string        `json:"kubernetes"`
	BlockSize  int           `json:"block_size"`
	Machines   []coldMachine `json:"machines"`
}

// coldMachine is what one machine read up to one moment.
type coldMachine struct {
	Disk  string `json:"disk"`
	Roles string `json:"roles"`
	Until string `json:"until"`
	reads
	// Best and Worst bound the time that a cold EBS volume takes for these reads, in seconds, by the model.
	Best  float64 `json:"ebs_best_s"`
	Worst float64 `json:"ebs_worst_s"`
}

// onEBS completes a machine's figures with the model: at best touchesAtOnce blocks are fetched at once and nothing waits for a
// single one, at worst one is fetched after the other.
func onEBS(disk, roles, until string, r reads) coldMachine {
	moved := float64(r.Bytes) / gp3Rate
	rounds := (r.Blocks + touchesAtOnce - 1) / touchesAtOnce
	return coldMachine{disk, roles, until, r,
		max(float64(rounds)*touchBest.Seconds(), moved), float64(r.Blocks)*touchWorst.Seconds() + moved}
}

// find returns the machine, or nil.
func (c cold) find(disk, roles, until string) *coldMachine {
	for i, m := range c.Machines {
		if m.Disk == disk && m.Roles == roles && m.Until == until {
			return &c.Machines[i]
		}
	}
	return nil
}

// table writes the figures for people.
func (c cold) table(out io.Writer) error {
	fmt.Fprintf(out, "reads of a cold disk from power-on (Kubernetes %s; MB are 10^6 bytes, blocks %d KiB; EBS is a model)\n", c.Kubernetes, c.BlockSize>>10)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "disk\troles\tuntil\treads\tMB\tMB once\tblocks\tEBS, s\t\n")
	for _, m := range c.Machines {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.1f\t%.1f\t%d\t%.1f to %.0f\t\n", m.Disk, m.Roles, m.Until, m.Requests, mb(m.Bytes), mb(m.Cold), m.Blocks, m.Best, m.Worst)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, disk := range []string{writableDisk, sealedDisk} {
		c.goals(out, disk)
	}
	return nil
}

// goals compares a disk's counts with the goals.
func (c cold) goals(out io.Writer, disk string) {
	say := func(what string, have, goal float64, form string) {
		verdict := "reached"
		if have > goal {
			verdict = "missed"
		}
		fmt.Fprintf(out, "%s, %s: "+form+", goal "+form+": %s\n", disk, what, have, goal, verdict)
	}
	for _, by := range []struct {
		what  string
		bytes func(*coldMachine) float64
	}{
		{"cold", func(m *coldMachine) float64 { return float64(m.Cold) }},
		{"all reads", func(m *coldMachine) float64 { return float64(m.Bytes) }},
	} {
		if m := c.find(disk, minionRoles, untilReady); m != nil {
			say("minion, MB, "+by.what, by.bytes(m)/1e6, coldMinion/1e6, "%.1f")
		}
		if m := c.find(disk, masterRoles, untilReady); m != nil {
			say("master, MB, "+by.what, by.bytes(m)/1e6, coldMaster/1e6, "%.1f")
		}
		ours, theirs := c.find(disk, minionRoles, untilNodeReady), c.find(kubeadmsDisk, minionRoles, untilNodeReady)
		if ours != nil && theirs != nil {
			say("minion, of kubeadm's bytes, "+by.what, by.bytes(ours)/by.bytes(theirs), coldShare, "%.2f")
		}
	}
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// write writes the table and the JSON to a directory.
func (c cold) write(dir string) error {
	var text strings.Builder
	if err := c.table(&text); err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeFigures(dir, "cold", text.String(), data)
}

func TestColdFigures(t *testing.T) {
	t.Parallel()
	some := func(bytes int64, blocks int) reads {
		return reads{1000, bytes, bytes - 1e6, blocks, map[string]int64{"root": bytes - 2e6, "esp": 1e6}}
	}
	c := cold{"v1.2.3", ami.BlockSize, []coldMachine{
		onEBS(writableDisk, masterRoles, untilReady, some(coldMaster, 320)),
		onEBS(writableDisk, minionRoles, untilNodeReady, some(250e6, 700)),
		onEBS(writableDisk, minionRoles, untilReady, some(260e6, 701)),
		onEBS(kubeadmsDisk, minionRoles, untilNodeReady, some(200e6, 1)),
		onEBS(sealedDisk, minionRoles, untilNodeReady, some(80e6, 0)),
		onEBS(sealedDisk, minionRoles, untilReady, some(coldMinion+100e3, 32)),
	}}
	dir := t.TempDir()
	if err := c.write(dir); err != nil {
		t.Fatal(err)
	}
	assertFigures(t, dir, "cold", "cold")
}
