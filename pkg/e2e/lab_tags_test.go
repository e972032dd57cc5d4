package e2e

import (
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
)

// tagsCluster has three etcd machines and one master. A volume and backups would be a line more in the user data of each.
// TestLabEtcd, in e2e-long, kills machines of a similar cluster.
const tagsCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: cncfdemo
groups:
- {name: masters, roles: [masters]}
- {name: etcd, roles: [etcd], members: [a, b, c]}
etcd: {storage: machine, backup: {to: none}}
`

// TestLabTags starts three machines with the same user data, which become the three members of an etcd cluster. Each
// finds its member's name in its tag; the list of members is in the cluster's store, from which the master has it too.
func TestLabTags(t *testing.T) {
	needTime(t)
	r := newLab(t, "tags", tagsCluster)
	s := r.until(t, "the master and the members are ready", ready)
	for _, member := range []string{"a", "b", "c"} {
		m, err := s.Find("etcd-" + member)
		if err != nil {
			t.Fatal(err)
		}
		r.toldBy(t, m.ID, seedEtcd)
		values := r.effective(t, m.ID)
		if v := values["etcd.member"]; v.Value != member || v.From != config.FromInstance || v.Where != "its tag EtcdMember" {
			t.Errorf("etcd-%s takes itself for %+v", member, v)
		}
		if v := values["group"]; v.Value != "cncfdemo-etcd-"+member || v.Where != "its tag aws:autoscaling:groupName" {
			t.Errorf("etcd-%s is of group %+v", member, v)
		}
		if v := values["etcd.members"]; v.Value != "a b c" || v.From != config.FromStore {
			t.Errorf("etcd-%s knows the members %+v", member, v)
		}
	}
	one, err := s.Find("etcd-a")
	if err != nil {
		t.Fatal(err)
	}
	const pki = "/run/hardtack/pki/etcd/"
	// etcdctl gives up after five seconds by itself, which an emulated machine may need for the handshake alone.
	out := r.ask(t, one.ID, "etcdctl --command-timeout=2m --dial-timeout=1m --endpoints=https://127.0.0.1:2379 --cacert="+pki+"ca.crt --cert="+pki+"server.crt --key="+pki+"server.key member list")
	for _, member := range []string{"a", "b", "c"} {
		if !strings.Contains(out, "started, "+member+", https://etcd-"+member+".cncfdemo.k8s:2380, https://etcd-"+member+".cncfdemo.k8s:2379, false") {
			t.Errorf("etcd's own list has no member %s:\n%s", member, out)
		}
	}
	master, err := s.Find("masters")
	if err != nil {
		t.Fatal(err)
	}
	r.toldBy(t, master.ID, strings.SplitAfter(seedMasters, "cncfdemo\n")[0])
}
