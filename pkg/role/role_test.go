package role

import (
	"slices"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	want := []string{"/etc/sysconfig/kubernetes-masters", "/etc/sysconfig/kubernetes-minions", "/etc/sysconfig/kubernetes-etcd"}
	for i, r := range All() {
		if r.File() != want[i] {
			t.Errorf("%s has %s, want %s", r, r.File(), want[i])
		}
		if back, named, err := OfFile(r.File()); back != r || !named || err != nil {
			t.Errorf("OfFile(%s) = %q, %v, %v", r.File(), back, named, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "master", "Masters", "masters ", "kubernetes-masters", "none"} {
		if r, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "masters, minions, etcd") {
			t.Errorf("Parse(%q) = %q, %v, want an error that lists the roles", bad, r, err)
		}
	}
	if r, err := Parse("minions"); r != Minions || err != nil {
		t.Errorf("Parse(minions) = %q, %v", r, err)
	}
}

func TestOfFile(t *testing.T) {
	tests := []struct {
		file  string
		role  Role
		named bool
		bad   bool
	}{
		{"/etc/sysconfig/kubernetes-etcd", Etcd, true, false},
		{"/etc//sysconfig/./kubernetes-etcd", Etcd, true, false},
		{"/etc/sysconfig/kubernetes-master", "", true, true},
		{"/etc/sysconfig/kubernetes-", "", true, true},
		{"/etc/sysconfig/network", "", false, false},
		{"/etc/kubernetes-masters", "", false, false},
		{"/etc/sysconfig/sub/kubernetes-masters", "", false, false},
		{"etc/sysconfig/kubernetes-masters", "", false, false},
		{"", "", false, false},
	}
	for _, tt := range tests {
		r, named, err := OfFile(tt.file)
		if r != tt.role || named != tt.named || (err != nil) != tt.bad {
			t.Errorf("OfFile(%q) = %q, %v, %v", tt.file, r, named, err)
		}
	}
}

func TestSets(t *testing.T) {
	var names []string
	for _, s := range Combinations() {
		names = append(names, s.String())
		back, err := ParseSet(s.String())
		if err != nil || !slices.Equal(back, s) {
			t.Errorf("ParseSet(%q) = %v, %v", s, back, err)
		}
	}
	want := []string{"none", "masters", "minions", "masters+minions", "etcd", "masters+etcd", "minions+etcd", "masters+minions+etcd"}
	if !slices.Equal(names, want) {
		t.Errorf("combinations are %v, want %v", names, want)
	}
	if s := NewSet("web", Etcd, Masters, Etcd, "web"); !slices.Equal(s, Set{Masters, Etcd, "web"}) {
		t.Errorf("NewSet gives %v, want each role once and in order", s)
	}
	if s, err := ParseSet("etcd+masters"); err != nil || s.String() != "masters+etcd" {
		t.Errorf("ParseSet(etcd+masters) = %v, %v", s, err)
	}
	for _, bad := range []string{"masters,etcd", "masters+", "+", "masters+master"} {
		if s, err := ParseSet(bad); err == nil {
			t.Errorf("ParseSet(%q) = %v, want an error", bad, s)
		}
	}
	if (Set{Masters}).Has(Minions) || !(Set{Masters}).Has(Masters) || Set(nil).Has(Masters) {
		t.Error("Has is wrong about a member")
	}
}

// TestOwn has names of an operator's own roles, and those that are none: a slip, a name that DNS does not take, one that has
// another meaning.
func TestOwn(t *testing.T) {
	for _, good := range []string{"ingress", "gpu", "edge-lb", "x1", "mailers"} {
		r, err := Parse(good)
		if err != nil || r.Known() {
			t.Errorf("%s: %v", good, err)
		}
		if back, named, err := OfFile(r.File()); back != r || !named || err != nil {
			t.Errorf("OfFile(%s) = %q, %v, %v", r.File(), back, named, err)
		}
	}
	for bad, want := range map[string]string{
		"minion": "masters, minions, etcd", "mniions": "masters, minions, etcd", "etdc": "masters, minions, etcd", "Ingress": "DNS label", "in_gress": "DNS label",
		"-x": "DNS label", "9lives": "DNS label", strings.Repeat("a", 33): "at most 32", "none": "another meaning", "api": "another meaning", "etcd-a": "another meaning", "edge-7": "another meaning",
	} {
		if r, err := Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %q, %v, want %q", bad, r, err, want)
		}
	}
	if got := NewSet("web", Etcd, "gpu", Masters, "web").String(); got != "masters+etcd+gpu+web" {
		t.Errorf("the set is %s", got)
	}
	if got, err := ParseSet("ingress+minions"); err != nil || got.String() != "minions+ingress" || Join(Own(got), " ") != "ingress" {
		t.Errorf("ParseSet: %v, %v", got, err)
	}
	if got := len(Combinations("gpu", "web")); got != 3*8 {
		t.Errorf("%d combinations", got)
	}
	if got := Files([]string{"kubernetes-ingress", "kubernetes-etcd", "kubernetes-Old", "network"}).String(); got != "etcd+ingress" {
		t.Errorf("the files are those of %s", got)
	}
}
