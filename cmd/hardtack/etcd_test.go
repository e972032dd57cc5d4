package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// etcdRegion is an account with the default cluster: one member, which runs on its volume and has reported just now.
type etcdRegion struct {
	*awsfake.Account
	machine, volume string
	story           string // what the last command wrote to stderr
}

func newEtcdRegion(t *testing.T) *etcdRegion {
	t.Helper()
	r := &etcdRegion{Account: awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm:PutParameter": 0}})}
	server := httptest.NewServer(r.Handler())
	t.Cleanup(server.Close)
	for k, v := range map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true", "HOME": t.TempDir()} {
		t.Setenv(k, v)
	}
	document := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(document, spec.Minimal("demo"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HARDTACK_CLUSTER", document)
	tags := map[string]string{role.TagCluster: "demo", role.TagEtcdMember: "a"}
	m, err := r.EC2().Run(awsfake.Machine{Zone: "us-west-2a", Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	r.machine, r.volume = m.ID, r.EC2().CreateVolume("us-west-2a", 20, tags).ID
	if _, err := r.EC2().AttachVolume(r.volume, r.machine, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	r.record(t, etcd.BeginObject(1), etcd.Encode(etcd.Begin{Token: "t", Members: []etcd.Peer{{Name: "a", URL: "https://127.0.0.1:2380"}}}))
	r.record(t, etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 255, Members: map[string]etcd.ID{"a": 7}}}))
	r.record(t, etcd.UsedObject(r.volume), etcd.Encode(etcd.Used{Epoch: 1, How: etcd.ByStart}))
	now := time.Now()
	r.record(t, etcd.StatusObject("a"), etcd.Encode(etcd.Status{At: now, Instance: r.machine, Volume: r.volume, Epoch: 1, MemberID: 7, ClusterID: 255, Row: etcd.SRuns, Leader: 7,
		Store:    etcd.Content{Version: "3.6.14", RaftIndex: 1200, Revision: 1000},
		Backup:   &etcd.Backup{Restore: etcd.Restore{Object: "1/b.db", SHA256: strings.Repeat("0", 64), Revision: 900}, At: now, Verified: now},
		Verified: &etcd.Backup{Restore: etcd.Restore{Object: "1/a.db", SHA256: strings.Repeat("1", 64), Revision: 800}, At: now.Add(-3 * time.Hour), Verified: now.Add(-2 * time.Hour)}}))
	return r
}

func (r *etcdRegion) record(t *testing.T, object string, content []byte) {
	t.Helper()
	if _, err := r.SSM().Put(awsfake.Parameter{Name: "/hardtack/demo/" + object, Value: string(content)}, true); err != nil {
		t.Fatal(err)
	}
}

// hardtack runs hardtack etcd, and returns its output and its exit code.
func (r *etcdRegion) hardtack(t *testing.T, args ...string) (out string, code int, err error) {
	t.Helper()
	var stdout, story bytes.Buffer
	err = newApp(&stdout, &story).RunContext(t.Context(), append([]string{"hardtack", "etcd"}, args...))
	r.story = story.String()
	return stdout.String(), exitCode(err), err
}

// TestEtcdStatus: what a script reads from the exit code is so.
func TestEtcdStatus(t *testing.T) {
	r := newEtcdRegion(t)
	out, code, err := r.hardtack(t, "status")
	if code != 0 || !strings.Contains(out, r.machine+" (running)") || !strings.Contains(out, r.volume+" (in-use by "+r.machine+")") || !strings.Contains(out, "1 of 1 members are healthy voters, a quorum is 1") ||
		!strings.Contains(out, "newest backup that was taken back from its place: 1/a.db, of revision 800, 3h0m") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if out, code, err := r.hardtack(t, "status", "--json"); code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"healthy": true`) {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	r.EC2().Terminate(r.machine)
	if out, code, err := r.hardtack(t, "status"); code != unhealthyExit || !strings.Contains(out, "a: volume "+r.volume+" is available: no machine has it\n  next: ") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if _, code, err := r.hardtack(t, "status", "--store", "nowhere"); code != 2 {
		t.Errorf("exit %d, %v", code, err)
	}
	r.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) (f awsfake.Fault) {
		if c.Action == "GetParameter" {
			f.Refuse = &awsfake.Error{Status: 400, Code: "AccessDeniedException", Message: "no"}
		}
		return f
	}))
	if out, code, err := r.hardtack(t, "status"); code != 1 || out != "" {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
}

// TestEtcdReplace: the volume is what the document says; it is made once.
func TestEtcdReplace(t *testing.T) {
	r := newEtcdRegion(t)
	if _, code, err := r.hardtack(t, "replace", "a"); code != 1 || !strings.Contains(err.Error(), "is held by "+r.machine) {
		t.Errorf("while it is held: exit %d, %v", code, err)
	}
	r.EC2().Terminate(r.machine)
	if err := r.EC2().DeleteVolume(r.volume); err != nil {
		t.Fatal(err)
	}
	if out, code, err := r.hardtack(t, "replace", "--zone", "us-west-2a", "--dry-run", "a"); code != 0 || !strings.Contains(out, "member a: would make a volume of 20 GiB in us-west-2a") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for _, want := range []string{"member a: made volume vol-", "is there and has never had data"} {
		if out, code, err := r.hardtack(t, "replace", "--zone", "us-west-2a", "a"); code != 0 || !strings.Contains(out, want) || !strings.Contains(out, "next: its machine attaches the volume and waits") {
			t.Errorf("exit %d, %v, want %s\n%s", code, err, want, out)
		}
	}
	if _, code, err := r.hardtack(t, "replace"); code != 2 {
		t.Errorf("exit %d, %v", code, err)
	}
}

// TestEtcdOrders: an order is created once, the leader's machine answers it, and the command tells what it did.
func TestEtcdOrders(t *testing.T) {
	r := newEtcdRegion(t)
	if out, code, err := r.hardtack(t, "defrag", "--dry-run"); code != 0 || out != "would order: defrag\n" {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	for range 2 { // the second finds the first, which nobody has answered
		if out, code, err := r.hardtack(t, "defrag"); code != 0 || !strings.Contains(out, "ordered: defrag, as order 1 of epoch 1\nthe machine of member a, which leads") {
			t.Errorf("exit %d, %v\n%s", code, err, out)
		}
	}
	now := time.Now()
	r.record(t, etcd.AnswerObject(1, 1), etcd.Encode(etcd.Answer{At: now, Instance: r.machine, Member: "a", Done: []string{"defragmented member a"}}))
	r.record(t, etcd.OrderObject(1, 2), etcd.Encode(etcd.Order{At: now, Verb: etcd.AskDefrag}))
	r.record(t, etcd.AnswerObject(1, 3), etcd.Encode(etcd.Answer{At: now, Instance: r.machine, Member: "a", Error: "one is silent", Next: "look"}))
	r.record(t, etcd.AnswerObject(1, 2), etcd.Encode(etcd.Answer{At: now, Instance: r.machine, Member: "a", Done: []string{"defragmented member a"}}))
	if out, code, err := r.hardtack(t, "defrag", "--wait"); code != 1 || !strings.Contains(out, "as order 3 of") || !strings.Contains(err.Error(), "order 3: the machine of member a says: one is silent\n  next: look") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	r.record(t, etcd.AnswerObject(1, 4), etcd.Encode(etcd.Answer{At: now, Instance: r.machine, Member: "a", Done: []string{"defragmented member a"}}))
	if out, code, err := r.hardtack(t, "defrag", "--wait", "--json"); code != 0 || !json.Valid([]byte(out)) || !strings.Contains(out, `"defragmented member a"`) {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	if _, code, err := r.hardtack(t, "remove", "--yes", "a"); code != 1 || !strings.Contains(err.Error(), "member a is the only one") {
		t.Errorf("exit %d, %v", code, err)
	}
	if _, code, err := r.hardtack(t, "remove", "a"); code != 1 || !strings.Contains(err.Error(), "member a is the only one") {
		t.Errorf("what cannot be is not asked for: exit %d, %v", code, err)
	}
	if _, code, err := r.hardtack(t, "remove"); code != 2 {
		t.Errorf("exit %d, %v", code, err)
	}
}

// TestEtcdMove: a member of three is removed by an order, its volume is kept without its tag, and it gets one in the other zone.
func TestEtcdMove(t *testing.T) {
	r := newEtcdRegion(t)
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups:\n- {name: masters, roles: [masters, etcd], members: [a, b, c]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000c", VPC: "vpc-00000000000000001", Zone: "us-west-2c"})
	now, volumes := time.Now(), map[string]string{"a": r.volume}
	report := func(member string, at time.Time, id etcd.ID) {
		r.record(t, etcd.StatusObject(member), etcd.Encode(etcd.Status{At: at, Instance: r.machine, Volume: volumes[member], Epoch: 1, MemberID: id, ClusterID: 255, Row: etcd.SRuns, Leader: 7,
			Store:  etcd.Content{Version: "3.6.14", RaftIndex: 1200, Revision: 1000},
			Backup: &etcd.Backup{Restore: etcd.Restore{Object: "1/b.db", SHA256: strings.Repeat("0", 64), Revision: 900}, At: now, Verified: now}}))
	}
	for member, id := range map[string]etcd.ID{"b": 8, "c": 9} {
		tags := map[string]string{role.TagCluster: "demo", role.TagEtcdMember: member}
		m, err := r.EC2().Run(awsfake.Machine{Zone: "us-west-2a", Tags: tags})
		if err != nil {
			t.Fatal(err)
		}
		volumes[member] = r.EC2().CreateVolume("us-west-2a", 20, tags).ID
		if _, err := r.EC2().AttachVolume(volumes[member], m.ID, "/dev/sdf"); err != nil {
			t.Fatal(err)
		}
		r.machine = m.ID
		report(member, now, id)
	}
	r.record(t, etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &etcd.Formed{ClusterID: 255, Members: map[string]etcd.ID{"a": 7, "b": 8, "c": 9}}}))
	move := []string{"move", "-f", file, "--subnet", "subnet-0000000000000000c"}
	refused := func(want string, code int, args ...string) {
		t.Helper()
		if out, got, err := r.hardtack(t, append(slices.Clone(move), args...)...); got != code || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit %d, %v, want %d, %s\n%s", got, err, code, want, out)
		}
	}
	refused("name one member", 2)
	refused(`"d" is no member of etcd: they are a, b, c`, 1, "d")
	report("b", now.Add(-time.Hour), 8)
	refused("the members b are not healthy voters", 1, "c")
	report("b", now, 8)
	if out, code, err := r.hardtack(t, "remove", "-f", file, "c"); code != 2 || out != "" || r.story != "warning: 2 members remain, which bear the loss of 0: no more than 1 do\nwould order: remove c\n" || !strings.Contains(err.Error(), "Remove member c of etcd of cluster demo, whose machine then stops?") {
		t.Errorf("remove: exit %d, %v\n%s%s", code, err, out, r.story)
	}
	says := func(want string, args ...string) {
		t.Helper()
		if out, code, err := r.hardtack(t, append(slices.Clone(move), args...)...); code != 0 || !strings.Contains(out, want) {
			t.Errorf("exit %d, %v, want %s\n%s", code, err, want, out)
		}
	}
	says("would remove member c from etcd\nwould take the tag EtcdMember off volume "+volumes["c"]+", keep it, and make another in us-west-2c\nthen: ", "--dry-run", "c")
	if n := r.Calls()["ec2:CreateVolume"]; n != 0 {
		t.Errorf("a dry run has made %d volumes", n)
	}
	r.record(t, etcd.AnswerObject(1, 1), etcd.Encode(etcd.Answer{At: now, Instance: r.machine, Member: "a", Done: []string{"removed member c"}}))
	says("member c is removed, and volume "+volumes["c"]+" is kept without its tag EtcdMember\nmade volume vol-", "c")
	kept, ok := r.EC2().Volume(volumes["c"])
	if !ok || kept.Tags[role.TagEtcdMember] != "" || kept.Tags[role.TagCluster] != "demo" {
		t.Errorf("the volume that it has had: %+v", kept)
	}
	says("us-west-2c; if its group is not there yet: ", "c")
	says(`"there": true`, "--json", "c")
}

// TestEtcdMoveNext: the command that goes on means the same cluster, where it is, when it is pasted.
func TestEtcdMoveNext(t *testing.T) {
	app := newApp(&bytes.Buffer{}, &bytes.Buffer{})
	next := ""
	findCommand(findCommand(app.Commands, "etcd").Subcommands, "move").Action = func(c *cli.Context) error {
		next = applyMoved(c, "b", []string{"subnet-1", "subnet-2"})
		return nil
	}
	move := []string{"hardtack", "etcd", "move", "-f", "my cluster.yaml", "--region", "eu-west-1", "--stack", "prod", "--subnet", "subnet-2", "b"}
	if err := app.RunContext(t.Context(), move); err != nil {
		t.Fatal(err)
	}
	if want := "hardtack stack apply -f 'my cluster.yaml' --stack prod --region eu-west-1 --etcd-subnets subnet-1,subnet-2"; next != want {
		t.Errorf("got  %s\nwant %s", next, want)
	}
}

// TestEtcdMembers: a row has the member's report, whatever its health.
func TestEtcdMembers(t *testing.T) {
	r := newEtcdRegion(t)
	out, code, err := r.hardtack(t, "members")
	if code != 0 || !strings.Contains(out, "MEMBER  ROLE    ID  MACHINE") || !strings.Contains(out, r.volume) || !strings.Contains(out, "a       leader  7   "+r.machine) {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, append(spec.Minimal("demo"), "groups:\n- {name: masters, roles: [masters, etcd], members: [a, b]}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code, err := r.hardtack(t, "members", "-f", file); code != 0 || !strings.Contains(out, "b       -       -   -                    -                      -") {
		t.Errorf("who has never reported has a lag: exit %d, %v\n%s", code, err, out)
	}
	r.EC2().Terminate(r.machine)
	if out, code, err := r.hardtack(t, "members", "--json"); code != 0 || !strings.Contains(out, `"role": "leader"`) || !strings.Contains(out, `"id": "7"`) {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
}
