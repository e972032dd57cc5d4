package role

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseOpening(t *testing.T) {
	for text, want := range map[string]Opening{
		"80/tcp minions":                      {Protocol: "tcp", First: 80, Last: 80, From: Set{Minions}},
		"53/udp 10.0.0.0/8 minions masters":   {Protocol: "udp", First: 53, Last: 53, From: Set{Masters, Minions}, Ranges: []string{"10.0.0.0/8"}},
		"30000-32767/tcp ingress":             {Protocol: "tcp", First: 30000, Last: 32767, From: Set{"ingress"}},
		"443/tcp 2001:db8::/32 ::/0 ::/0 web": {Protocol: "tcp", First: 443, Last: 443, From: Set{"web"}, Ranges: []string{"2001:db8::/32", "::/0"}},
	} {
		got, err := ParseOpening(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	for bad, want := range map[string]string{
		"": "no port", "80 minions": "write 80/tcp", "80/sctp minions": "write 80/tcp", "0/tcp minions": "1 to 65535", "65536/tcp minions": "1 to 65535",
		"080/tcp minions": "1 to 65535", "http/tcp minions": "1 to 65535", "90-80/tcp minions": "comes before", "80-80/tcp minions": "comes before", "80-/tcp minions": "1 to 65535",
		"80/tcp": "nobody connects", "80/tcp minion": "masters, minions, etcd", "80/tcp 10.0.0.1/8": "first address", "80/tcp 10.0.0.0/33": "no range", "80/tcp 10.0.0.1": "not known",
	} {
		if o, err := ParseOpening(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseOpening(%q) = %+v, %v, want %q", bad, o, err, want)
		}
	}
}

// The tag of an image has a list as text: what is read back is what was written, but for the units.
func TestFormatOpenings(t *testing.T) {
	list := []Opening{
		{Role: "ingress", Protocol: "tcp", First: 80, Last: 80, From: Set{Minions}, Ranges: []string{"10.0.0.0/8", "2001:db8::/32"}, Unit: "haproxy.service"},
		{Protocol: "tcp", First: 9100, Last: 9101, From: Set{Minions, "ingress"}, Unit: "node-exporter.service"},
	}
	text := FormatOpenings(list)
	if want := "ingress:80/tcp=minions+10.0.0.0/8+2001:db8::/32 any:9100-9101/tcp=minions+ingress"; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	back, err := ParseOpenings(text)
	list[0].Unit, list[1].Unit = "", ""
	if diff := cmp.Diff(list, back); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if none, err := ParseOpenings(FormatOpenings(nil)); err != nil || none == nil || len(none) > 0 {
		t.Errorf("no openings are %v, %v", none, err)
	}
	for _, bad := range []string{"", " ", "ingress", "ingress:80/tcp", "ingress:80/tcp=", "minion:80/tcp=minions", "80/tcp=minions", "none none"} {
		if got, err := ParseOpenings(bad); err == nil {
			t.Errorf("ParseOpenings(%q) = %v, want an error", bad, got)
		}
	}
}

func TestOverlaps(t *testing.T) {
	o := func(r Role, protocol string, first, last int) Opening {
		return Opening{Role: r, Protocol: protocol, First: first, Last: last}
	}
	for _, tt := range []struct {
		a, b Opening
		want bool
	}{
		{o("a", "tcp", 80, 90), o("a", "tcp", 90, 95), true},
		{o("a", "tcp", 80, 90), o("a", "tcp", 91, 95), false},
		{o("a", "tcp", 80, 80), o("b", "tcp", 80, 80), false},
		{o("a", "tcp", 80, 80), o("", "tcp", 80, 80), true},
		{o("a", "tcp", 80, 80), o("a", "udp", 80, 80), false},
	} {
		if tt.a.Overlaps(tt.b) != tt.want || tt.b.Overlaps(tt.a) != tt.want {
			t.Errorf("%+v and %+v: want %v", tt.a, tt.b, tt.want)
		}
	}
}
