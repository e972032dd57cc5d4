package reconcile

import (
	"testing"
	"time"
)

func TestGenerationRemembersDepartures(t *testing.T) {
	at := time.Date(2026, 11, 21, 12, 0, 0, 500, time.UTC)
	g := generation{}.next(at, "3w5e11264sgsf", []string{"10.0.0.1"}).next(at.Add(time.Minute), "3w5e11264sgsf", []string{"10.0.0.9"})
	back, err := parseGeneration(g.String())
	if err != nil {
		t.Fatal(err)
	}
	if back != g {
		t.Errorf("read back %+v, wrote %+v", back, g)
	}
	if left := back.leftBy("10.0.0.1"); left.Before(at) || left.Sub(at) > time.Second {
		t.Errorf("10.0.0.1 left by %s, not within the second after %s", left, at)
	}
	if left := back.leftBy("10.0.0.2"); !left.IsZero() {
		t.Errorf("10.0.0.2 left by %s, but it was never there", left)
	}
	if n := len("generation=" + g.String()); n > 255 {
		t.Errorf("%d characters are more than a TXT string holds", n)
	}
	for _, text := range []string{"", "abc", "2" + g.String()[1:], g.String()[:100], g.String() + "+"} {
		if _, err := parseGeneration(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// What is made without a Syncer is what a Syncer reads, and no two are alike.
func TestNewGeneration(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	g, err := parseGeneration(NewGeneration(now, 1))
	if err != nil || !g.committed.Equal(now) || g != (generation{committed: now, nonce: "1"}) {
		t.Errorf("%+v, %v", g, err)
	}
	if NewGeneration(now, 1) == NewGeneration(now, 2) {
		t.Error("two of one second are alike")
	}
}
