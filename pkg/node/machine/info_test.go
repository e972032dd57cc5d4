package machine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestInfo(t *testing.T) {
	want := whole().Info()
	data, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseInfo("info", data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if d := want.Differences(got); d != nil {
		t.Errorf("it differs from itself: %q", d)
	}
	got.Network.ServiceCIDR, got.Etcd.Members = "10.0.0.0/16", nil
	if d, want := want.Differences(got), []string{"network.serviceCIDR is 10.0.0.0/16, not 10.96.0.0/16", "etcd.members is none (one beside its API server), not a b c"}; !slices.Equal(d, want) {
		t.Errorf("%q, want %q", d, want)
	}
}

// TestInfoProblems has everything that is wrong of an object at once.
func TestInfoProblems(t *testing.T) {
	for text, want := range map[string]string{
		"": "info: the cluster's own facts are empty",
		"apiVersion: hardtack.dev/v1\nkind: ClusterInfo\ncluster: Demo\napi: {port: 0}\nnetwork: {serviceCIDR: x, podcidr: 10.0.0.0/8}\n": `info:3: cluster: "Demo" is not a DNS label
info:4: api.port: 0 is not a port
info:5: field "podcidr" is not known (did you mean "podCIDR"?)`,
		"apiVersion: hardtack.dev/v1\nkind: ClusterInfo\napi: {port: 443}\nnetwork: {}\n": `info:1: cluster: is missing
info:4: network.dnsAddress: is missing
info:4: network.dnsDomain: is missing
info:4: network.podCIDR: is missing
info:4: network.serviceCIDR: is missing`,
	} {
		_, err := ParseInfo("info", []byte(text))
		if err == nil {
			t.Errorf("%q is taken", text)
			continue
		}
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestEtcd(t *testing.T) {
	var got []string
	for _, s := range EtcdSettings("demo", "b", []string{"a", "b"}) {
		got = append(got, s.Variable()+"="+s.Value)
	}
	want := []string{
		"ETCD_NAME=b", "ETCD_LISTEN_CLIENT_URLS=https://0.0.0.0:2379", "ETCD_LISTEN_PEER_URLS=https://0.0.0.0:2380",
		"ETCD_ADVERTISE_CLIENT_URLS=https://etcd-b.demo.k8s:2379", "ETCD_INITIAL_ADVERTISE_PEER_URLS=https://etcd-b.demo.k8s:2380",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := EtcdServers("demo", []string{"a", "b"}); got != "https://etcd-a.demo.k8s:2379,https://etcd-b.demo.k8s:2379" {
		t.Error(got)
	}
}

func TestDNSOf(t *testing.T) {
	for cidr, want := range map[string]string{"10.96.0.0/16": "10.96.0.10", "x": ""} {
		if got := DNSOf(cidr); got != want {
			t.Errorf("%s gives %q, want %q", cidr, got, want)
		}
	}
}
