package reconcile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// noon is a whole second.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) int64 { return noon.Add(-d).Unix() }

// A generation is read as it was written, and what is none of this version is refused whole.
func TestParseGeneration(t *testing.T) {
	all := generation{committed: noon, burst: maxBurst, nonce: "n", floor: ago(time.Hour), left: []departure{{0, ago(0)}, {hashes - 1, ago(maxAge * time.Second)}}}
	none := generation{committed: noon, nonce: "n"}
	for _, g := range []generation{all, none} {
		if back, err := parseGeneration(g.String()); err != nil || !reflect.DeepEqual(back, g) {
			t.Errorf("%s: read %+v, %v, wrote %+v", g, back, err, g)
		}
		if at, err := GenerationTime(g.String()); err != nil || !at.Equal(noon) {
			t.Errorf("%s: committed at %s, %v", g, at, err)
		}
	}
	text := all.String()
	fields := strings.Split(text, ".")
	with := func(i int, value string) string {
		other := append([]string(nil), fields...)
		other[i] = value
		return strings.Join(other, ".")
	}
	for name, bad := range map[string]string{
		"another version": with(0, "3"), "no time": with(1, "-"), "no burst": with(2, "x"), "a burst below": with(2, "-1"), "a burst above": with(2, fmt.Sprint(maxBurst+1)),
		"no floor": with(4, "-"), "half a departure": with(5, fields[5][:7]), "no hash": with(5, "-1000"), "no age": with(5, "000-0"),
		"a field more": text + ".", "a field less": strings.Join(fields[:5], "."),
	} {
		if g, err := parseGeneration(bad); err == nil || !reflect.DeepEqual(g, generation{}) {
			t.Errorf("%s: %q was read as %+v, %v", name, bad, g, err)
		}
		if at, err := GenerationTime(bad); err == nil || !at.IsZero() {
			t.Errorf("%s: committed at %s, %v", name, at, err)
		}
	}
}

// What has left is remembered with the newest time, each machine once, for as long as an age fits; what is older than that, or
// has no room, left by the floor.
func TestGenerationNext(t *testing.T) {
	a, b, c := hashOf("i-a"), hashOf("i-b"), hashOf("i-c")
	for name, tc := range map[string]struct {
		from generation
		now  time.Time
		gone []string
		want generation
	}{
		"nothing": {now: noon, want: generation{committed: noon}},
		"a part of a second is a whole one": {now: noon.Add(time.Nanosecond), gone: []string{"i-a"},
			want: generation{committed: noon.Add(time.Second), left: []departure{{a, noon.Add(time.Second).Unix()}}}},
		"the burst stays": {from: generation{burst: 3}, now: noon, want: generation{committed: noon, burst: 3}},
		"once each":       {now: noon, gone: []string{"i-a", "i-a"}, want: generation{committed: noon, left: []departure{{a, ago(0)}}}},
		"again":           {from: generation{left: []departure{{a, ago(time.Minute)}}}, now: noon, gone: []string{"i-a"}, want: generation{committed: noon, left: []departure{{a, ago(0)}}}},
		"the newest first": {from: generation{left: []departure{{b, ago(time.Minute)}, {c, ago(time.Second)}}}, now: noon, gone: []string{"i-a"},
			want: generation{committed: noon, left: []departure{{a, ago(0)}, {c, ago(time.Second)}, {b, ago(time.Minute)}}}},
		"another's clock": {from: generation{left: []departure{{a, ago(-time.Minute)}}}, now: noon, want: generation{committed: noon, left: []departure{{a, ago(0)}}}},
		"as old as fits":  {from: generation{left: []departure{{a, ago(maxAge * time.Second)}}}, now: noon, want: generation{committed: noon, left: []departure{{a, ago(maxAge * time.Second)}}}},
		"too old":         {from: generation{left: []departure{{a, ago((maxAge + 1) * time.Second)}}}, now: noon, want: generation{committed: noon}},
		"a floor":         {from: generation{floor: ago(maxAge * time.Second)}, now: noon, want: generation{committed: noon, floor: ago(maxAge * time.Second)}},
		"an old floor":    {from: generation{floor: ago((maxAge + 1) * time.Second)}, now: noon, want: generation{committed: noon}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.nonce = "n"
			if got := tc.from.next(tc.now, "n", tc.gone); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// As many departures are kept as there is room for, the oldest of which make the floor.
func TestGenerationHasRoom(t *testing.T) {
	full := generation{}
	for i := range maxDepartures {
		full.left = append(full.left, departure{int64(i), ago(time.Duration(i) * time.Second)})
	}
	same := full.next(noon, "n", nil)
	if len(same.left) != maxDepartures || same.floor != 0 {
		t.Errorf("%d departures, floor %d", len(same.left), same.floor)
	}
	if n := len(same.String()); n > record.MaxGeneration || n < record.MaxGeneration-60 {
		t.Errorf("%d characters", n)
	}
	id := "i-0"
	for n := 0; hashOf(id) < maxDepartures; n++ {
		id = fmt.Sprint("i-", n)
	}
	more := full.next(noon, "n", []string{id})
	oldest := full.left[maxDepartures-1]
	if len(more.left) != maxDepartures || more.floor != oldest.at || more.find(id) < 0 || more.left[0].at != ago(0) {
		t.Errorf("%d departures, floor %d, want %d", len(more.left), more.floor, oldest.at)
	}
	full.floor = oldest.at + 1 // somebody's floor is later
	if more = full.next(noon, "n", []string{id}); more.floor != oldest.at+1 {
		t.Errorf("floor %d, want %d", more.floor, oldest.at+1)
	}
}

// A machine has left by the time that is remembered, else by the floor, else never.
func TestGenerationLeftBy(t *testing.T) {
	g := generation{left: []departure{{hashOf("i-a"), ago(0)}, {hashOf("i-b"), ago(time.Minute)}}}
	for id, want := range map[string]time.Time{"i-a": noon, "i-b": noon.Add(-time.Minute), "i-c": {}} {
		if got := g.leftBy(id); !got.Equal(want) {
			t.Errorf("%s left by %s, want %s", id, got, want)
		}
	}
	g.floor = ago(time.Hour)
	if got := g.leftBy("i-c"); !got.Equal(noon.Add(-time.Hour)) {
		t.Errorf("i-c left by %s", got)
	}
}

// Writes that follow each other with several machines each make a burst, and so long as it goes on they are further apart.
func TestBurst(t *testing.T) {
	const first = 5 * time.Second
	for _, tc := range []struct {
		burst     int
		since     time.Duration
		addresses int
		want      int
	}{
		{0, 15 * time.Second, stormAddresses, 1}, {0, 15*time.Second + 1, stormAddresses, 0},
		{1, 15 * time.Second, stormAddresses, 2}, {2, 25 * time.Second, stormAddresses, 3}, {2, 25*time.Second + 1, stormAddresses, 0},
		{2, time.Second, stormAddresses - 1, 2}, {0, time.Second, stormAddresses - 1, 0}, {maxBurst, time.Second, 100, maxBurst},
	} {
		g := generation{committed: noon, burst: tc.burst}
		if got := g.burstAt(noon.Add(tc.since), first, tc.addresses); got != tc.want {
			t.Errorf("%+v: %d", tc, got)
		}
	}
	if got := (generation{burst: 3}).burstAt(noon, first, 100); got != 0 {
		t.Errorf("the first write of all has burst %d", got)
	}
	for burst, want := range map[int]time.Duration{0: first, 1: first, 4: 4 * first} {
		if got := (generation{burst: burst}).pace(first); got != want {
			t.Errorf("burst %d: %s, want %s", burst, got, want)
		}
	}
}
