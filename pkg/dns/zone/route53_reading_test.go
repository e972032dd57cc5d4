package zone_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

func TestNewRoute53(t *testing.T) {
	if z, err := zone.NewRoute53(&stub{t: t}, "/hostedzone/", record.DefaultPolicy()); err == nil || z != nil {
		t.Errorf("a zone without an id: %v, %v", z, err)
	}
	if z := in(t, &stub{t: t}, "/hostedzone/Z1"); z.ID() != "Z1" || z.Signer() == "" {
		t.Errorf("%q, signed by %q", z.ID(), z.Signer())
	}
}

// alias and weighted are sets of Route 53's own kinds.
func alias(s types.ResourceRecordSet) types.ResourceRecordSet {
	s.ResourceRecords, s.TTL, s.AliasTarget = nil, nil, &types.AliasTarget{DNSName: aws.String("balancer.example.")}
	return s
}

func weighted(s types.ResourceRecordSet) types.ResourceRecordSet {
	s.SetIdentifier, s.Weight = aws.String("blue"), aws.Int64(1)
	return s
}

// A reading has what may be the cluster's, from all pages and to the end of the cluster's names alone.
func TestRoute53Reads(t *testing.T) {
	s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{
		page("masters.demo.dns.example.",
			plain("demo.dns.example.", types.RRTypeA, 5, "10.9.9.9"),
			plain("_hardtack.demo.dns.example.", types.RRTypeTxt, 5, `"owner=" "x"`, `"a"`),
			plain(`\052.demo.dns.example.`, types.RRTypeA, 5, "10.9.9.9"),
			plain("blog.demo.dns.example.", types.RRTypeCname, 5, "elsewhere.example."),
			alias(plain("own.demo.dns.example.", types.RRTypeA, 5)),
			weighted(plain("own2.demo.dns.example.", types.RRTypeA, 5, "10.9.9.9")),
			plain("etcd.demo.dns.example.", types.RRTypeA, 5, "10.0.0.3", "10.0.0.2")),
		page("unread.",
			plain("masters.demo.dns.example.", types.RRTypeAaaa, 60, "2001:db8::1"),
			plain("masters.demo.dns.example.", types.RRTypeA, 5, "10.0.0.1"),
			plain("masters.demo.dns.example.", types.RRTypeMx, 5, "10 mail."),
			plain("demo2.dns.example.", types.RRTypeA, 5, "10.9.9.9")),
	}}
	p := record.DefaultPolicy()
	p.Suffix = "dns.example"
	z, err := zone.NewRoute53(s, "Z1", p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := z.Read(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	set := func(name, kind string, ttl time.Duration, values ...string) record.Set {
		return record.Set{Name: name + ".demo.dns.example.", Type: kind, TTL: ttl, Values: values}
	}
	exactly(t, got,
		set("_hardtack", record.TXT, 5*time.Second, "a", "owner=x"), set("etcd", record.A, 5*time.Second, "10.0.0.2", "10.0.0.3"),
		set("masters", record.A, 5*time.Second, "10.0.0.1"), set("masters", record.AAAA, time.Minute, "2001:db8::1"))
	if len(s.listed) != 2 || aws.ToString(s.listed[0].HostedZoneId) != "Z1" || aws.ToString(s.listed[0].StartRecordName) != "demo.dns.example." ||
		aws.ToString(s.listed[1].StartRecordName) != "masters.demo.dns.example." || s.listed[1].StartRecordType != types.RRTypeA ||
		aws.ToString(s.listed[1].StartRecordIdentifier) != "id of masters.demo.dns.example." {
		t.Errorf("asked for %+v", s.listed)
	}
}

// What stands in the place of a record of the cluster is named, and so is a list that does not say how it goes on.
func TestRoute53CannotRead(t *testing.T) {
	broken := page("masters.demo.k8s.")
	broken.NextRecordName = nil
	failure := errors.New("AccessDenied")
	for name, tc := range map[string]struct {
		page route53.ListResourceRecordSetsOutput
		err  error
		says string
	}{
		"a CNAME":          {page: page("", plain("masters.demo.k8s.", types.RRTypeCname, 5, "x.")), says: "masters.demo.k8s. has a CNAME"},
		"an alias":         {page: page("", alias(plain("masters.demo.k8s.", types.RRTypeA, 5))), says: "masters.demo.k8s. has an alias of type A"},
		"a routing policy": {page: page("", weighted(plain("masters.demo.k8s.", types.RRTypeA, 5, "10.0.0.1"))), says: "masters.demo.k8s. has a routing policy for type A"},
		"no next page":     {page: broken, says: "ends in its middle"},
		"an error":         {err: failure, says: "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := in(t, &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{tc.page}, list: tc.err}, "Z1").Read(t.Context(), "demo")
			says(t, err, []string{"demo", tc.says})
			if got != nil {
				t.Errorf("read %v", got)
			}
		})
	}
}

// What is another's has all that the cluster does not have, except for the zone's own SOA and name servers.
func TestForeignNames(t *testing.T) {
	s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{
		page("demo.k8s.",
			plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 5"), plain("k8s.", types.RRTypeNs, 900, "ns.example."),
			plain("sub.k8s.", types.RRTypeNs, 900, "ns.example."), plain(`\052.k8s.`, types.RRTypeA, 5, "10.9.9.9")),
		page("",
			plain("_hardtack.demo.k8s.", types.RRTypeTxt, 5, `"generation=1"`),
			alias(plain("etcd.demo.k8s.", types.RRTypeA, 5)),
			plain("masters.demo.k8s.", types.RRTypeA, 5, "10.0.0.1"),
			plain("minions.demo.k8s.", types.RRTypeA, 5, "10.0.0.2"),
			plain("minions.demo.k8s.", types.RRTypeMx, 5, "10 mail.")),
	}}
	got, err := zone.ForeignNames(t.Context(), s, "Z1", "demo", record.DefaultPolicy())
	if want := []string{"*.k8s.", "etcd.demo.k8s.", "minions.demo.k8s.", "sub.k8s."}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	s = &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{page("", plain("k8s.", types.RRTypeA, 5, "10.9.9.9"),
		plain("masters.demo.k8s.", types.RRTypeA, 5, "10.0.0.1"), plain("masters.demo.k8s.", types.RRTypeTxt, 5, `"heritage=external-dns"`))}}
	got, err = zone.ForeignNames(t.Context(), s, "Z1", "demo", record.DefaultPolicy())
	if want := []string{"k8s.", "masters.demo.k8s."}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	broken := page("x.k8s.")
	broken.NextRecordName = nil
	for name, s := range map[string]*stub{"ends in its middle": {t: t, pages: []route53.ListResourceRecordSetsOutput{broken}}, "AccessDenied": {t: t, list: errors.New("AccessDenied")}} {
		got, err := zone.ForeignNames(t.Context(), s, "Z1", "demo", record.DefaultPolicy())
		says(t, err, []string{"Z1", name})
		if got != nil {
			t.Errorf("%v", got)
		}
	}
	if _, err := zone.ForeignNames(t.Context(), s, "", "demo", record.DefaultPolicy()); err == nil {
		t.Error("a zone without an id has names")
	}
}

// What a TXT record holds is written and read as it is; Route 53 writes some characters in another way.
func TestRoute53KeepsEveryText(t *testing.T) {
	values := []string{"", `"`, `"a`, `a"`, `a"b`, `\`, `a\`, `\a\`, `\065`, `\\065`, `\"`, "a b", "\x01a"}
	slices.Sort(values)
	want := []record.Set{{Name: "_hardtack.demo.k8s.", Type: record.TXT, TTL: 5 * time.Second, Values: values}}
	s := &stub{t: t}
	z := in(t, s, "Z1")
	if err := z.CompareAndSwap(t.Context(), "demo", nil, want); err != nil {
		t.Fatal(err)
	}
	s.pages = []route53.ListResourceRecordSetsOutput{page("", *s.sent[0].ChangeBatch.Changes[0].ResourceRecordSet)}
	got, err := z.Read(t.Context(), "demo")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for text, want := range map[string]string{
		`"a\052b"`: "a*b", `"\052"`: "*", `"a" "b"`: "ab", `"a"  "\"b"`: `a"b`, `""`: "", `a`: "a", `"\134065"`: `\065`, `"a\`: `a\`,
	} {
		s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{page("", plain("_hardtack.demo.k8s.", types.RRTypeTxt, 5, text))}}
		got, err := in(t, s, "Z1").Read(t.Context(), "demo")
		if err != nil || len(got) != 1 || got[0].Values[0] != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

// The names in a zone may have characters that Route 53 writes in another way.
func TestRoute53Names(t *testing.T) {
	for text, want := range map[string]string{
		`\052.k8s.`: "*.k8s.", `a\100b.k8s.`: "a@b.k8s.", `k8s.\052`: "k8s.*", `a\.k8s.`: `a\.k8s.`, `a\05`: `a\05`, `\0`: `\0`, `\777.k8s.`: `\777.k8s.`, `\08x.k8s.`: `\08x.k8s.`,
	} {
		s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{page("", plain(text, types.RRTypeA, 5, "10.9.9.9"))}}
		got, err := zone.ForeignNames(t.Context(), s, "Z1", "demo", record.DefaultPolicy())
		if err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}
