package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
	var out string
	// An emulated API server may take longer than kubectl waits; what it says then is a sign of life and no answer.
	r.until(t, "the API answers for the object of before", func(lab.Status) bool {
		var err error
		out, err = r.kubectl(t.Context(), "get", "configmap", "kept", "-o", keptFields)
		return err == nil || strings.Contains(out, "Error from server (NotFound)")
	})
	if out != string(k) {
		t.Errorf("the object of before is %q, want %q", out, k)
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
			if err := r.writes(t, "hardtack.dev/lost="+lost.Volume); err != nil {
				t.Fatalf("while %s: the API does not answer: %v", what, err)
			}
			answers++
			return ok(s)
		})
	}
	victim := r.machineOf(t, member)
	r.loses(t, lost.Volume, victim)
	while("the next machine waits for a volume", waitsForVolume(member, victim))
	r.must(t, "etcd", "replace", "-f", r.file, member)
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

// machineOf is the machine of a member of etcd.
func (r *running) machineOf(t *testing.T, member string) lab.MachineStatus {
	t.Helper()
	m, err := mustStatus(t, r).Find("etcd-" + member)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// must runs the command as the owner of the lab's account.
func (r *running) must(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := r.aws(t.Context(), t, args...)
	if err != nil {
		t.Fatalf("hardtack %v: %v: %s", args, err, out)
	}
	return out
}

// loses loses a volume and the machine that has it.
func (r *running) loses(t *testing.T, volume string, m lab.MachineStatus) {
	t.Helper()
	if err := r.LoseVolume(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
}

// waitsForVolume reports whether the machine after victim says that there is no volume.
func waitsForVolume(member string, victim lab.MachineStatus) func(lab.Status) bool {
	return func(s lab.Status) bool {
		m, err := s.Find("etcd-" + member)
		return err == nil && m.ID != victim.ID && slices.ContainsFunc(m.Failures, func(f reason.Failure) bool {
			return f.Reason == reason.Volume && strings.Contains(f.Cause, "no volume")
		})
	}
}

// restoredRevision is by how much a restore raises the revisions, so that every watch of before ends.
const restoredRevision = 1_000_000_000

// labRestores takes a backup, loses the volumes of two members of three with their machines, and restores the backup. What was
// made before the backup must be there, what was made after it is lost, and both masters must serve again without a hand.
func labRestores(t *testing.T, r *running, kept labKept) {
	was := r.etcd(t)
	r.must(t, "etcd", "backup", "-f", r.file, "--wait")
	if out, err := r.kubectl(t.Context(), "create", "configmap", "late"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	victims := map[string]lab.MachineStatus{}
	for _, m := range was.Members[:2] {
		victims[m.Name] = r.machineOf(t, m.Name)
		r.loses(t, m.Status.Volume, victims[m.Name])
	}
	for member, victim := range victims {
		r.until(t, "the next machine of etcd-"+member+" waits for a volume", waitsForVolume(member, victim))
		r.must(t, "etcd", "replace", "-f", r.file, member)
	}
	if now := r.etcd(t); now.Healthy || now.Epoch != was.Epoch {
		t.Errorf("without a majority of its data etcd is %+v", now)
	}
	before := r.apiServers(t)
	r.must(t, "etcd", "restore", "-f", r.file, "--from", "latest", "--lose-writes-since", was.Members[0].Status.At.Add(-time.Hour).UTC().Format(time.RFC3339), "--yes")
	var now operate.Report
	r.until(t, "every member is a voter of the next epoch", func(s lab.Status) bool {
		now = r.etcd(t)
		return s.Ready && now.Voters == len(was.Members)
	})
	if now.Epoch != was.Epoch+1 || now.ClusterID == was.ClusterID {
		t.Errorf("after the restore etcd is epoch %d, cluster %s; before it %d, %s", now.Epoch, now.ClusterID, was.Epoch, was.ClusterID)
	}
	// Masters start their daemons again, each when it has seen the next epoch.
	r.until(t, "every master has another API server, which is ready", func(lab.Status) bool {
		for master, process := range r.apiServers(t) {
			if process == "0" || process == before[master] {
				return false
			}
		}
		_, err := r.kubectl(t.Context(), "get", "--raw", "/readyz")
		return err == nil
	})
	kept.there(t, r)
	if out, err := r.kubectl(t.Context(), "get", "configmap", "late", "-o", "name"); err == nil || !strings.Contains(out, "NotFound") {
		t.Errorf("what was made after the backup: %v: %s", err, out)
	}
	out, err := r.kubectl(t.Context(), "create", "configmap", "next", "-o", "jsonpath={.metadata.resourceVersion}")
	if n, parsed := strconv.Atoi(out); err != nil || parsed != nil || n < restoredRevision {
		t.Errorf("the revision of a write after the restore is %q, want at least %d: %v", out, restoredRevision, err)
	}
}

// apiServers are the processes of the masters' API servers, by machine; 0 while there is none.
func (r *running) apiServers(t *testing.T) map[string]string {
	t.Helper()
	s, err := r.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, m := range s.Machines {
		if m.Group == "masters" && m.Ended.IsZero() {
			all[m.ID] = strings.TrimSpace(r.ask(t, m.ID, "systemctl show --property=MainPID --value kube-apiserver"))
		}
	}
	return all
}
