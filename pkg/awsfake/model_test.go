package awsfake_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

var modelSeed = flag.Uint64("model-seed", 0, "replay the batches of this seed; 0 takes a new one")

// model is a zone as a plain map. It implements batches a second time, from the documentation and independently of
// awsfake.
type model map[string]awsfake.RecordSet

func modelKey(s awsfake.RecordSet) string { return s.Name + "|" + s.Type }

// apply returns the zone after the batch, or false for a batch that must be refused.
func (m model) apply(changes []awsfake.Change) (model, bool) {
	after := maps.Clone(m)
	actions := map[string]string{}
	for _, c := range changes {
		key := modelKey(c.Set)
		actions[key] += c.Action[:1]
		old, there := after[key]
		switch c.Action {
		case "CREATE":
			if there {
				return nil, false
			}
		case "DELETE":
			if !there || old.TTL != c.Set.TTL || !sameValues(old.Values, c.Set.Values) {
				return nil, false
			}
			delete(after, key)
			continue
		}
		for _, other := range after {
			if other.Name == c.Set.Name && other.Type != c.Set.Type && (other.Type == "CNAME" || c.Set.Type == "CNAME") {
				return nil, false
			}
		}
		after[key] = c.Set
	}
	for _, order := range actions {
		if len(order) > 1 && order != "DC" {
			return nil, false
		}
	}
	return after, true
}

func sameValues(a, b []string) bool {
	count := map[string]int{}
	for _, v := range a {
		count[v]++
	}
	for _, v := range b {
		count[v]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// TestAgainstModel sends random batches to the fake and the model: both must take or refuse each, and
// hold the same sets after it. Half of the batches delete existing sets, so that many are accepted.
func TestAgainstModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	account := awsfake.New(awsfake.Options{Clock: awsfake.NewVirtualClock(start), Rates: unlimited})
	r := account.Route53()
	taken, refused := 0, 0
	for round := range 20 {
		zone, err := r.CreateHostedZone(t.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: fmt.Sprint(round)})
		if err != nil {
			t.Fatal(err)
		}
		now := model{}
		for _, s := range listModel(t, r, zone.ID, 300) {
			now[modelKey(s)] = s
		}
		for range 200 {
			batch := randomBatch(rng, now)
			_, err := r.ChangeResourceRecordSets(t.Context(), zone.ID, batch)
			after, ok := now.apply(batch)
			if ok != (err == nil) {
				t.Fatalf("seed %d: the model says %v to\n%+v\non\n%+v\nthe fake says %v", seed, ok, batch, now, err)
			}
			if ok {
				now = after
				taken++
			} else {
				refused++
			}
			compareWithModel(t, r, zone.ID, now, 1+rng.IntN(6))
		}
	}
	if taken < 500 || refused < 500 {
		t.Errorf("seed %d: %d batches taken and %d refused: too few of one kind to show anything", seed, taken, refused)
	}
}

func randomBatch(rng *rand.Rand, now model) []awsfake.Change {
	var batch []awsfake.Change
	kinds := map[string][]string{"A": {"10.0.0.1", "10.0.0.2", "10.0.0.3"}, "TXT": {`"1"`, `"2"`}, "CNAME": {"y.k8s.", "x.k8s."}}
	keys := slices.Sorted(maps.Keys(now))
	for range 1 + rng.IntN(4) {
		kind := []string{"A", "A", "TXT", "CNAME"}[rng.IntN(4)]
		values := slices.Clone(kinds[kind])
		rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		n := 1
		if kind != "CNAME" {
			n += rng.IntN(len(values))
		}
		s := awsfake.RecordSet{Name: []string{"a.k8s.", "a-b.k8s.", "c.a.k8s."}[rng.IntN(3)], Type: kind, TTL: int64(5 + rng.IntN(2)), Values: values[:n]}
		action := []string{"CREATE", "DELETE", "UPSERT"}[rng.IntN(3)]
		if old := now[keys[rng.IntN(len(keys))]]; old.Name != "k8s." && rng.IntN(2) == 0 {
			batch = append(batch, awsfake.Change{Action: "DELETE", Set: old})
			s.Name, s.Type, action = old.Name, old.Type, "CREATE"
			s.Values = kinds[old.Type][:1]
		}
		batch = append(batch, awsfake.Change{Action: action, Set: s})
	}
	return batch
}

func listModel(t *testing.T, r *awsfake.Route53, zone string, perPage int) []awsfake.RecordSet {
	t.Helper()
	var all []awsfake.RecordSet
	for from := (&awsfake.Start{}); from != nil; {
		page, err := r.ListResourceRecordSets(t.Context(), zone, *from, perPage)
		if err != nil {
			t.Fatal(err)
		}
		all, from = append(all, page.Sets...), page.Next
	}
	return all
}

func compareWithModel(t *testing.T, r *awsfake.Route53, zone string, want model, perPage int) {
	t.Helper()
	sorted := slices.SortedFunc(maps.Values(want), func(a, b awsfake.RecordSet) int {
		return strings.Compare(modelOrder(a), modelOrder(b))
	})
	if diff := cmp.Diff(sorted, listModel(t, r, zone, perPage)); diff != "" {
		t.Fatalf("the zone differs from the model (-model +fake):\n%s", diff)
	}
}

// modelOrder is Route 53's order as one text: the reversed name, then the type.
func modelOrder(s awsfake.RecordSet) string {
	labels := strings.Split(strings.TrimSuffix(s.Name, "."), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + ".\x00" + s.Type
}

func BenchmarkSwap(b *testing.B) {
	account := awsfake.New(awsfake.Options{Clock: awsfake.NewVirtualClock(start), Rates: unlimited})
	r := account.Route53()
	zone, err := r.CreateHostedZone(b.Context(), awsfake.HostedZone{Name: "k8s", CallerReference: "1"})
	if err != nil {
		b.Fatal(err)
	}
	generation := func(n int) awsfake.RecordSet {
		return awsfake.RecordSet{Name: "generation.demo.k8s.", Type: "TXT", TTL: 5, Values: []string{fmt.Sprintf(`"%d"`, n)}}
	}
	batch := []awsfake.Change{{Action: "CREATE", Set: generation(0)}}
	for i := range 20 {
		batch = append(batch, awsfake.Change{Action: "CREATE", Set: awsfake.RecordSet{Name: fmt.Sprintf("n%d.demo.k8s", i), Type: "A", TTL: 5, Values: []string{"10.0.0.1"}}})
	}
	if _, err := r.ChangeResourceRecordSets(b.Context(), zone.ID, batch); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		if _, err := r.ListResourceRecordSets(b.Context(), zone.ID, awsfake.Start{}, 0); err != nil {
			b.Fatal(err)
		}
		_, err := r.ChangeResourceRecordSets(b.Context(), zone.ID, []awsfake.Change{
			{Action: "DELETE", Set: generation(n)}, {Action: "CREATE", Set: generation(n + 1)}})
		if err != nil {
			b.Fatal(err)
		}
		n++
	}
}
