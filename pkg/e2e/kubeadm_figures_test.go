package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"

	"gotest.tools/v3/golden"
)

// The ways to join a cluster that are compared: Hardtack with a writable root, with a sealed one, and kubeadm.
const (
	byHardtack = "hardtack"
	bySealed   = "sealed"
	byKubeadm  = "kubeadm"
)

// comparison is the result of a run of scripts/compare-kubeadm.
type comparison struct {
	Kubernetes string `json:"kubernetes"`
	// CPUs are this computer's; KVM is false where the machines' processors are emulated.
	CPUs int  `json:"cpus"`
	KVM  bool `json:"kvm"`
	// Instructions says that each machine had one processor and a clock by which an instruction takes 2 ns. Times are then by the
	// machine's clock and from its kernel's start, registered and Ready by the kubelet's own words, CPU is the time until Ready in which
	// the machine's processor was busy, and Kernel and Tasks are nothing.
	Instructions bool `json:"instructions,omitempty"`
	// UserData is the size of the user data that the metadata service serves, in bytes, for each way of joining.
	UserData map[string]int `json:"user_data_bytes"`
	Joins    []join         `json:"joins"`
}

// join is one machine that became a node. Times are in seconds after its power-on.
type join struct {
	By    string `json:"by"`
	Round int    `json:"round"`
	// Kernel is the time of the kernel's first message; Files is when the files of the user data were written.
	Kernel float64 `json:"kernel_s"`
	Files  float64 `json:"files_s"`
	// Joining is when the machine began to join: its token was there, or kubeadm was started.
	Joining float64 `json:"joining_s"`
	// Kubelet is when the kubelet was started. With kubeadm, that is after most of kubeadm's work.
	Kubelet float64 `json:"kubelet_s"`
	// Registered and Ready are when a watch of the API server reported the Node, and its condition Ready.
	Registered float64 `json:"registered_s"`
	Ready      float64 `json:"ready_s"`
	// CPU is the processor time that the machine's process had used on this computer until Ready. On a busy computer
	// times grow, but this hardly changes.
	CPU float64 `json:"cpu_s"`
	// Tasks is the number of processes and threads that the kernel had started shortly after that.
	Tasks int `json:"tasks"`
	// Owners are the seconds of processor time by unit, as the machine's kernel counted them shortly after that. Where other work
	// on this computer takes processors away from the machine, that is in them.
	Owners map[string]float64 `json:"owners_s,omitempty"`
}

// parseOwners reads what systemctl shows of Id and CPUUsageNSec.
func parseOwners(text string) (map[string]float64, error) {
	owners := map[string]float64{}
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var id string
		var used float64
		for line := range strings.Lines(block) {
			switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); {
			case key == "Id":
				id = value
			case key == "CPUUsageNSec" && value != "[not set]":
				ns, err := strconv.ParseFloat(value, 64)
				if err != nil {
					return nil, err
				}
				used = ns / 1e9
			}
		}
		if used > 0 {
			owners[id] = used
		}
	}
	return owners, nil
}

// rows are the lines of the table.
var rows = []struct {
	name string
	of   func(join) float64
}{
	{"kernel", func(j join) float64 { return j.Kernel }},
	{"user data applied", func(j join) float64 { return j.Files }},
	{"token there, or kubeadm started", func(j join) float64 { return j.Joining }},
	{"kubelet started", func(j join) float64 { return j.Kubelet }},
	{"Node registered", func(j join) float64 { return j.Registered }},
	{"Node Ready", func(j join) float64 { return j.Ready }},
	{"processor time of the machine", func(j join) float64 { return j.CPU }},
	{"tasks started", func(j join) float64 { return float64(j.Tasks) }},
}

// median is the median of one way's joins; of two middle values it is the upper, so that it is a measured one.
func (c comparison) median(by string, of func(join) float64) float64 {
	var all []float64
	for _, j := range c.Joins {
		if j.By == by {
			all = append(all, of(j))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// each lists one figure of every round, the rounds in order.
func (c comparison) each(by, format string, of func(join) float64) string {
	var all []string
	for _, j := range c.Joins {
		if j.By == by {
			all = append(all, fmt.Sprintf(format, of(j)))
		}
	}
	return strings.Join(all, " ")
}

// ways are those that machines have joined by, in the table's order.
func (c comparison) ways() []string {
	return slices.DeleteFunc([]string{byHardtack, bySealed, byKubeadm}, func(by string) bool {
		return !slices.ContainsFunc(c.Joins, func(j join) bool { return j.By == by })
	})
}

// row writes one figure's medians, with their format, and then all of them.
func (c comparison) row(out io.Writer, name, format string, of func(join) float64) {
	all := "%.0f"
	if c.Instructions {
		all = "%.1f"
	}
	var medians, each strings.Builder
	for _, by := range c.ways() {
		fmt.Fprintf(&medians, format+"\t", c.median(by, of))
		fmt.Fprintf(&each, "%s\t", c.each(by, all, of))
	}
	fmt.Fprintf(out, "%s\t%s\t%s\n", name, &medians, &each)
}

// table writes the medians for people, and all figures beside them.
func (c comparison) table(out io.Writer) error {
	processors := "emulated"
	if c.KVM {
		processors = "with KVM"
	}
	since, cpus := "power-on", fmt.Sprintf("%d processors", c.CPUs)
	if c.Instructions {
		since, cpus, processors = "the kernel's start", "one processor of 500 million instructions a second", "emulated"
	}
	fmt.Fprintf(out, "seconds after %s, medians (Kubernetes %s, %s, machines %s)\n", since, c.Kubernetes, cpus, processors)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	ways := c.ways()
	fmt.Fprintf(w, "\t%s\t\tall of %s\t\n", strings.Join(ways, "\t"), strings.Join(ways, "\tall of "))
	format := "%.0f"
	if c.Instructions {
		format = "%.1f"
	}
	for _, r := range rows {
		if slices.ContainsFunc(c.Joins, func(j join) bool { return r.of(j) > 0 }) {
			c.row(w, r.name, format, r.of)
		}
	}
	none := strings.Repeat("\t", len(ways))
	fmt.Fprint(w, "user data, bytes\t")
	for _, by := range ways {
		fmt.Fprintf(w, "%d\t", c.UserData[by])
	}
	fmt.Fprintf(w, "\t%s\n", none)
	if owners := c.owners(); len(owners) > 0 {
		fmt.Fprintf(w, "\nprocessor time in the machine, by unit\t%s\t%[1]s\n", none)
		for _, name := range owners {
			c.row(w, name, "%.1f", func(j join) float64 { return j.Owners[name] })
		}
	}
	return w.Flush()
}

// owners are the units that use half a second in one way of joining, the greatest first.
func (c comparison) owners() []string {
	most := map[string]float64{}
	for _, j := range c.Joins {
		for name := range j.Owners {
			of := func(j join) float64 { return j.Owners[name] }
			for _, by := range c.ways() {
				most[name] = max(most[name], c.median(by, of))
			}
		}
	}
	maps.DeleteFunc(most, func(_ string, s float64) bool { return s < 0.5 })
	return slices.SortedFunc(maps.Keys(most), func(a, b string) int { return cmp.Or(cmp.Compare(most[b], most[a]), cmp.Compare(a, b)) })
}

// write writes the table and the JSON to a directory, each atomically.
func (c comparison) write(dir string) error {
	var text strings.Builder
	if err := c.table(&text); err != nil {
		return err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return writeFigures(dir, "compare-kubeadm", text.String(), data)
}

// writeFigures writes a table and its JSON to NAME.txt and NAME.json of a directory, each atomically.
func writeFigures(dir, name, table string, figures []byte) error {
	for kind, content := range map[string]string{".txt": table, ".json": string(figures) + "\n"} {
		file := filepath.Join(dir, name+kind)
		if err := os.WriteFile(file+".part", []byte(content), 0o644); err != nil {
			return err
		}
		if err := os.Rename(file+".part", file); err != nil {
			return err
		}
	}
	return nil
}

func TestKubeadmFigures(t *testing.T) {
	t.Parallel()
	c := comparison{Kubernetes: "v1.2.3", CPUs: 2, UserData: map[string]int{byHardtack: 1100, bySealed: 1100, byKubeadm: 900}}
	for i, ready := range []float64{212.4, 199.6, 350} {
		c.Joins = append(c.Joins,
			join{byHardtack, i + 1, 5.2, 60, 100, 130, 170, ready, ready / 2, 900, map[string]float64{"init.scope": 9, "kubelet.service": ready / 10, "small.service": 0.4}},
			join{bySealed, i + 1, 5.4, 50, 90, 120, 160, ready - 10, ready / 2, 850, map[string]float64{"init.scope": 8}},
			join{byKubeadm, i + 1, 5.3, 61, 62, 180, 230, ready + 50, ready / 2, 800, map[string]float64{"init.scope": 9, "kubeadm-join.service": 8}})
	}
	dir := t.TempDir()
	if err := c.write(dir); err != nil {
		t.Fatal(err)
	}
	assertFigures(t, dir, "compare-kubeadm", "kubeadm")
}

// TestKubeadmInstructions: by instructions there are no rows of what is not counted, and tenths of a second.
func TestKubeadmInstructions(t *testing.T) {
	t.Parallel()
	c := comparison{Kubernetes: "v1.2.3", CPUs: 2, Instructions: true, UserData: map[string]int{byHardtack: 1100, byKubeadm: 900}}
	for i, ready := range []float64{19.52, 19.61} {
		c.Joins = append(c.Joins,
			join{By: byHardtack, Round: i + 1, Files: 11.72, Joining: 15.6, Kubelet: 15.93, Registered: 18.68, Ready: ready, CPU: ready - 0.2},
			join{By: byKubeadm, Round: i + 1, Files: 11.6, Joining: 14.1, Kubelet: 22.04, Registered: 25.4, Ready: ready + 7, CPU: ready + 4})
	}
	dir := t.TempDir()
	if err := c.write(dir); err != nil {
		t.Fatal(err)
	}
	assertFigures(t, dir, "compare-kubeadm", "kubeadm/instructions")
}

func TestOwners(t *testing.T) {
	t.Parallel()
	got, err := parseOwners("Id=kubelet.service\nCPUUsageNSec=12500000000\n\nId=never.service\nCPUUsageNSec=[not set]\n\nId=init.scope\nCPUUsageNSec=3000000000\n")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"kubelet.service": 12.5, "init.scope": 3}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := parseOwners("Id=x.service\nCPUUsageNSec=x\n"); err == nil {
		t.Error("no figure is no error")
	}
}

// assertFigures compares what writeFigures has written with testdata.
func assertFigures(t *testing.T, dir, name, testdata string) {
	t.Helper()
	for _, kind := range []string{".txt", ".json"} {
		text, err := os.ReadFile(filepath.Join(dir, name+kind))
		if err != nil {
			t.Fatal(err)
		}
		golden.Assert(t, string(text), testdata+"/"+name+kind+".golden")
	}
}
