package reconcile

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

func TestGenerationRemembersDepartures(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 500, time.UTC)
	g := generation{}.next(at, "3w5e11264sgsf", []string{"i-1"}).next(at.Add(time.Minute), "3w5e11264sgsf", []string{"i-9"})
	back, err := parseGeneration(g.String())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, g) {
		t.Errorf("read back %+v, wrote %+v", back, g)
	}
	if left := back.leftBy("i-1"); left.Before(at) || left.Sub(at) > time.Second {
		t.Errorf("i-1 left by %s, not within the second after %s", left, at)
	}
	if left := back.leftBy("i-2"); !left.IsZero() {
		t.Errorf("i-2 left by %s, but it was never there", left)
	}
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprint("i-0", i))
	}
	full := g.next(at.Add(2*time.Minute), "3w5e11264sgsf", many)
	if n := len(full.String()); n > record.MaxGeneration {
		t.Errorf("%d characters are more than the control record holds", n)
	}
	for _, id := range append(many, "i-1") { // of those without room it is said that they left later than they did
		if left := full.leftBy(id); left.Before(at.Add(2*time.Minute)) && id != "i-1" || left.Before(at) {
			t.Errorf("%s left by %s", id, left)
		}
	}
	for _, text := range []string{"", "abc", "1" + g.String()[1:], g.String()[:30], g.String() + "+"} {
		if _, err := parseGeneration(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// What is made without a Syncer is what a Syncer reads, and no two are alike.
func TestNewGeneration(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	g, err := parseGeneration(NewGeneration(now, 1))
	if err != nil || !g.committed.Equal(now) || !reflect.DeepEqual(g, generation{committed: now, nonce: "1"}) {
		t.Errorf("%+v, %v", g, err)
	}
	if NewGeneration(now, 1) == NewGeneration(now, 2) {
		t.Error("two of one second are alike")
	}
}
