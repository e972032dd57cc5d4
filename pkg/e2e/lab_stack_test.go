package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// stackCluster has one control plane and that many minions, on a stack.
func stackCluster(minions int) string {
	return fmt.Sprintf(`apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], size: 1}
- {name: minions, roles: [minions], size: %d}
`, minions)
}

// stackOfThree has three members of etcd beside the master: the first of them is what the member of stackCluster becomes. It has
// no minion: beside five machines that are emulated on two processors an API server came up only now and then, since it gives its check
// of the Services' addresses a minute.
const stackOfThree = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters], size: 1}
- {name: etcd, roles: [etcd], members: [a, b, c]}
- {name: minions, roles: [minions], size: 0}
`

// TestStack does what a team does on AWS, with the same commands: publish the disk, create the authorities, apply the
// stack, scale out with a newly baked image, refresh the machines to it, the only master too, roll back, scale in, make
// three members of etcd out of one, and delete everything.
// The region that the commands call is the one that runs the machines, from the published images, with the launch
// templates, roles and user data of the stack.
func TestStack(t *testing.T) {
	needTime(t)
	s := newStack(t)
	var kept labKept
	part := func(name string, do func(t *testing.T)) {
		if !t.Failed() { // each builds on the one before
			t.Run(name, do)
		}
	}
	part("a cluster from nothing", func(t *testing.T) {
		s.apply(t, 1)
		s.apply(t, 1, "--machines", "yes")
		s.runs(t, s.first, 1)
		kept = labKeeps(t, s.running)
	})
	part("scaled out to a newly baked image", func(t *testing.T) {
		s.second = s.publish(t, newImage(t))
		if s.second.Found || s.second.Image == s.first.Image || s.second.Parent == "" || s.second.KeptBlocks == 0 {
			t.Errorf("a disk with another kernel command line: %+v after %+v", s.second, s.first)
		}
		s.apply(t, 2)
		// The existing machine is unchanged, the new one starts from the new image.
		s.waits(t, "the second minion is ready", func(now lab.Status) bool { return now.Ready && len(living(now, "minions")) == 2 })
		if got := imagesOf(mustStatus(t, s.running), "minions"); !slices.Equal(got, []string{s.first.Image, s.second.Image}) {
			t.Errorf("the minions run from %v, want the first and the second image", got)
		}
	})
	part("refreshed", func(t *testing.T) {
		s.hardtack(t, "stack", "refresh", "-f", s.document, "--yes", "--group", "minions", "--min-healthy", "50", "--checkpoints", "100", "--patience", "30m")
		s.runs(t, s.second, 2)
	})
	part("its only master refreshed, with etcd's data", func(t *testing.T) {
		was := s.etcd(t)
		s.hardtack(t, "stack", "refresh", "-f", s.document, "--yes", "--group", "masters", "--patience", "30m")
		s.waits(t, "the cluster is ready", func(now lab.Status) bool {
			return now.Ready && slices.Equal(imagesOf(now, "masters"), []string{s.second.Image})
		})
		labSameMembers(t, s.running, was)
		kept.there(t, s.running)
	})
	part("rolled back, and scaled in", func(t *testing.T) {
		s.hardtack(t, "image", "rollback", "--yes", "--channel", "stable")
		s.apply(t, 1)
		s.waits(t, "one minion is left", func(now lab.Status) bool { return now.Ready && len(living(now, "minions")) == 1 })
		s.hardtack(t, "stack", "refresh", "-f", s.document, "--yes", "--group", "minions", "--min-healthy", "0", "--checkpoints", "100", "--patience", "30m")
		s.runs(t, s.first, 1)
	})
	part("three members of etcd where there was one", func(t *testing.T) {
		was := s.etcd(t)
		s.hardtack(t, "etcd", "backup", "-f", s.document, "--wait")
		// A minion leaves while a master is there to move its pods away.
		s.apply(t, 0)
		s.waits(t, "no minion is left", func(now lab.Status) bool { return now.Ready && len(living(now, "minions")) == 0 })
		s.applies(t, stackOfThree, "--etcd-subnets", strings.Join(slices.Repeat(s.region.Subnets[:1], 3), ","))
		// The machine with the first member's volume is replaced by a master without, and the member goes on where its name is.
		s.hardtack(t, "stack", "refresh", "-f", s.document, "--yes", "--group", "masters", "--patience", "30m")
		var now operate.Report
		s.waits(t, "three members vote", func(l lab.Status) bool {
			now = s.etcd(t)
			return l.Ready && now.Voters == 3
		})
		first, before := now.Members[0].Status, was.Members[0].Status
		if now.Members[0].Name != "a" || first.MemberID != before.MemberID || first.Volume != before.Volume || first.ClusterID != before.ClusterID {
			t.Errorf("the only member was %+v, and etcd-a is %+v", before, first)
		}
		kept.there(t, s.running)
	})
	part("an empty account", func(t *testing.T) {
		s.hardtack(t, "stack", "delete", "-f", s.document, "--yes")
		s.waits(t, "no machine is left", func(now lab.Status) bool { return len(living(now, "")) == 0 })
		now := mustStatus(t, s.running)
		if i := slices.IndexFunc(now.Groups, func(g lab.GroupStatus) bool { return g.Desired > 0 }); i >= 0 || len(now.Records) > 0 {
			t.Errorf("after delete there are %+v and %+v", now.Records, now.Groups)
		}
	})
}

// stacked is a stack in a lab's region.
type stacked struct {
	*running
	region        lab.AWS
	document      string
	first, second published
}

// published is the output of `hardtack image publish --json`.
type published struct {
	Image, Parent string
	Found         bool
	KeptBlocks    int `json:"kept_blocks"`
}

// newStack starts an empty region, publishes the baked disk there and creates the cluster's authorities.
func newStack(t *testing.T) *stacked {
	t.Helper()
	s := &stacked{running: startLab(t, "stack", stackCluster(1), "--empty"), document: filepath.Join(t.TempDir(), "cluster.yaml")}
	var err error
	if s.region, err = s.AWS(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.file = s.document // which etcd status reads, and the test changes
	s.first = s.publish(t, image(t))
	s.hardtack(t, "pki", "create", "--cluster", "demo")
	return s
}

// hardtack runs the command as the region's owner.
func (s *stacked) hardtack(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), s.bin, append([]string{"lab", "aws", "--name", "stack", s.bin}, args...)...)
	cmd.Env, cmd.Stderr = s.env, t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("hardtack %v: %v: %s", args, err, out)
	}
	t.Logf("hardtack %v:\n%s", args, out)
	return out
}

// publish publishes a disk and points the channel at its image.
func (s *stacked) publish(t *testing.T, disk string) published {
	t.Helper()
	var p published
	if err := json.Unmarshal(s.hardtack(t, "image", "publish", "--arch", "amd64", "--channel", "stable", "--json", disk), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// apply updates the stack to a document with that number of minions.
func (s *stacked) apply(t *testing.T, minions int, flags ...string) {
	t.Helper()
	s.applies(t, stackCluster(minions), flags...)
}

// applies updates the stack to a document.
func (s *stacked) applies(t *testing.T, document string, flags ...string) {
	t.Helper()
	if err := os.WriteFile(s.document, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	s.hardtack(t, append([]string{"stack", "apply", "--yes", "-f", s.document, "--vpc", s.region.VPC, "--subnets", s.region.Subnets[0]}, flags...)...)
}

func (s *stacked) waits(t *testing.T, what string, ok func(lab.Status) bool) {
	t.Helper()
	s.until(t, what, ok)
}

// runs waits until that many minions are ready, all of them from the image.
func (s *stacked) runs(t *testing.T, from published, minions int) {
	t.Helper()
	s.waits(t, "the minions are ready", func(now lab.Status) bool { return now.Ready && len(living(now, "minions")) == minions })
	for _, id := range imagesOf(mustStatus(t, s.running), "minions") {
		if id != from.Image {
			t.Errorf("a minion runs from %s, want %s", id, from.Image)
		}
	}
}

// living returns the running machines of a group, or of all groups.
func living(s lab.Status, group string) []lab.MachineStatus {
	return slices.DeleteFunc(slices.Clone(s.Machines), func(m lab.MachineStatus) bool {
		return m.Power == "off" || group != "" && m.Group != group
	})
}

// imagesOf are the images of a group's machines, in the order of their launch.
func imagesOf(s lab.Status, group string) []string {
	var ids []string
	for _, m := range living(s, group) {
		ids = append(ids, m.Image)
	}
	return ids
}

// newImage bakes a disk that differs from the baked one in the kernel's command line.
func newImage(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), needPacker(t), "build", "-color=false", "-force", "-var", "output="+out,
		"-var", `kernel_arguments=["hardtack.generation=2"]`, "images/local.pkr.hcl")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("baking a second image: %v: %s", err, text)
	}
	return filepath.Join(out, "hardtack.qcow2")
}
