package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// aws runs the command as the owner of the lab's account, and returns what it prints.
func (r *running) aws(ctx context.Context, t *testing.T, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.bin, append([]string{"lab", "aws", "--name", r.home.Name, r.bin}, args...)...)
	cmd.Env, cmd.Stderr = r.env, t.Output()
	return cmd.Output()
}

// etcd is what hardtack etcd status says. Its exit code is not 0 where it has found something.
func (r *running) etcd(t *testing.T) operate.Report {
	t.Helper()
	var report operate.Report
	out, asked := r.aws(t.Context(), t, "etcd", "status", "-f", r.file, "--json")
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("hardtack etcd status: %v: %v: %s", asked, err, out)
	}
	return report
}

// kubectl runs kubectl on the lab's cluster.
func (r *running) kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := r.run(ctx, append([]string{"lab", "kubectl", "--name", r.home.Name}, args...)...)
	return strings.TrimSpace(out), err
}

// labKept is an object of the API, as it was made: its identity and its version.
type labKept string

const keptFields = "jsonpath={.metadata.uid} {.metadata.resourceVersion} {.data.of}"

// labKeeps makes an object that nothing changes.
func labKeeps(t *testing.T, r *running) labKept {
	t.Helper()
	out, err := r.kubectl(t.Context(), "create", "configmap", "kept", "--from-literal=of=before", "-o", keptFields)
	if err != nil || len(strings.Fields(out)) != 3 {
		t.Fatalf("making an object: %v: %s", err, out)
	}
	return labKept(out)
}

// there asserts that the object is as it was made.
func (k labKept) there(t *testing.T, r *running) {
	t.Helper()
	if out, err := r.kubectl(t.Context(), "get", "configmap", "kept", "-o", keptFields); err != nil || out != string(k) {
		t.Errorf("the object of before is %q, want %q: %v", out, k, err)
	}
}

// labSameMembers waits until every member is healthy, and asserts that they are those of an earlier report.
func labSameMembers(t *testing.T, r *running, was operate.Report) operate.Report {
	t.Helper()
	var now operate.Report
	r.until(t, "every member of etcd is healthy", func(s lab.Status) bool {
		now = r.etcd(t)
		return s.Ready && now.Voters == len(was.Members)
	})
	for i, m := range now.Members {
		if before := was.Members[i]; m.Status.MemberID != before.Status.MemberID || m.Status.Volume != before.Status.Volume || m.Status.ClusterID != before.Status.ClusterID {
			t.Errorf("etcd-%s was %+v and is %+v", m.Name, before.Status, m.Status)
		}
	}
	return now
}

// labLosesEtcd ends all machines of etcd at once.
func labLosesEtcd(t *testing.T, r *running, was operate.Report) {
	for _, m := range mustStatus(t, r).Machines {
		if strings.HasPrefix(m.Group, "etcd-") && m.Power == "on" {
			if err := r.Kill(t.Context(), m.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.until(t, "the lab has noticed", func(s lab.Status) bool { return !s.Ready })
	labSameMembers(t, r, was)
}

// labLosesVolume loses the volume of a member with its machine. The next machine must wait for a person, who makes a new
// volume; then the member joins again as another one. The API must answer throughout.
func labLosesVolume(t *testing.T, r *running, member string, was operate.Report) {
	i := slices.IndexFunc(was.Members, func(m operate.Member) bool { return m.Name == member })
	lost := was.Members[i].Status
	answers := 0
	while := func(what string, ok func(lab.Status) bool) {
		r.until(t, what, func(s lab.Status) bool {
			if out, err := r.kubectl(t.Context(), "annotate", "namespace", "default", "--overwrite", "hardtack.dev/lost="+lost.Volume); err != nil {
				t.Fatalf("while %s: the API does not answer: %v: %s", what, err, out)
			}
			answers++
			return ok(s)
		})
	}
	victim, err := mustStatus(t, r).Find("etcd-" + member)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.LoseVolume(t.Context(), lost.Volume); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), victim.ID); err != nil {
		t.Fatal(err)
	}
	while("the next machine waits for a volume", func(s lab.Status) bool {
		m, err := s.Find("etcd-" + member)
		return err == nil && m.ID != victim.ID && slices.ContainsFunc(m.Failures, func(f reason.Failure) bool {
			return f.Reason == reason.Volume && strings.Contains(f.Cause, "no volume")
		})
	})
	if out, err := r.aws(t.Context(), t, "etcd", "replace", "-f", r.file, member); err != nil {
		t.Fatalf("hardtack etcd replace %s: %v: %s", member, err, out)
	}
	var now operate.Report
	while("the member is a voter again", func(s lab.Status) bool {
		now = r.etcd(t)
		return s.Ready && now.Voters == len(was.Members)
	})
	got := now.Members[i].Status
	if got.Volume == lost.Volume || got.MemberID == lost.MemberID || got.ClusterID != lost.ClusterID {
		t.Errorf("etcd-%s was %+v and is %+v: want another volume and ID in the same cluster", member, lost, got)
	}
	t.Logf("without etcd-%s the API has answered %d times", member, answers)
}
