package record

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const (
	// shardMean is how many values a shard is meant to have: with the spread of a hash on top, its A
	// records still fit one answer of 1232 bytes (74 of them), and a change of one value rewrites few.
	shardMean = 50
	// maxShards bounds the search for a number of shards that fits a very small limit.
	maxShards = 1 << 12
)

// addAddresses adds the record of a name: one set if it fits the limit, else shards, a subset that fits one UDP answer,
// and a TXT with the total count. The etcd record and the API's names are never sharded.
func (b *builder) addAddresses(label string, members []Member, pick addressPicker) {
	fits := func(ms []Member) bool { return b.fits(countTypes(ms, pick)) }
	members = withAddress(members, pick)
	if fits(members) {
		b.addAddressSets(label, members, pick)
		return
	}
	if label == string(role.Etcd) {
		b.found.Add(problem.Problem{Rule: "too-many-values", Field: "role " + label,
			Text: fmt.Sprintf("%d members have more addresses than the DNS service takes in a set or a batch", len(members)),
			Hint: "an etcd cluster has at most 7 members: correct the Role tag of the groups that are not etcd's"})
		return
	}
	values := []string{countPrefix + strconv.Itoa(len(members))}
	if r, err := role.Parse(label); err == nil {
		shards := b.split(members, fits)
		if shards == nil {
			b.found.Add(problem.Problem{Rule: "too-many-values", Field: "role " + label,
				Text: fmt.Sprintf("%d members fit no %d shards of what the DNS service takes in a set and a batch", len(members), maxShards),
				Hint: "raise the DNS service's limit of values in a set (BIND: max-records-per-type)"})
			return
		}
		for i, s := range shards {
			b.addAddressSets(r.Shard(i), s, pick)
		}
		values = append(values, shardsPrefix+strconv.Itoa(len(shards)))
	}
	subset := topScored(members, b.policy.Subset)
	for !fits(subset) {
		subset = subset[:len(subset)-1]
	}
	b.addAddressSets(label, subset, pick)
	b.add(label, TXT, values)
}

// The longest addresses of the two families.
const (
	longestA    = len("255.255.255.255")
	longestAAAA = len("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")
)

// fits reports whether a name may have so many addresses of the two families. All sets of a name change together, so that one
// batch has to replace both; a single machine always fits.
func (b *builder) fits(a, aaaa int) bool {
	l := b.limits
	return (l.SetValues == 0 || max(a, aaaa) <= l.SetValues) &&
		(l.BatchValues == 0 || a+aaaa <= max(2, replaceable(l.BatchValues, b.control.values))) &&
		(l.BatchCharacters == 0 || a*longestA+aaaa*longestAAAA <= max(longestA+longestAAAA, replaceable(l.BatchCharacters, b.control.characters)))
}

// replaceable is how much of what a batch takes may be replaced in it (all removed, all created) beside the control record, which each
// batch replaces too: nine tenths, and less beside a large one. It is never less than a tenth: the control record is seldom as large
// as it may get, and shards of a few addresses each would be many.
func replaceable(batch, control int) int {
	return max(batch/20, min(batch*9/20, batch/2-control))
}

func withAddress(members []Member, pick addressPicker) []Member {
	var out []Member
	for _, m := range members {
		for _, a := range pick(m) {
			if a.IsValid() {
				out = append(out, m)
				break
			}
		}
	}
	return out
}

func countTypes(members []Member, pick addressPicker) (a, aaaa int) {
	for _, m := range members {
		for _, addr := range pick(m) {
			switch {
			case addr.Is4():
				a++
			case addr.IsValid():
				aaaa++
			}
		}
	}
	return a, aaaa
}

// split distributes the members over a power of two of shards that all fit. The number of shards depends on the number
// of members only (and, for limits near the mean, on the hashes), so it rarely changes; while it stays the same, a
// machine that comes or goes changes one value of one shard. When it grows, values only move to the new shards.
func (b *builder) split(members []Member, fits func([]Member) bool) [][]Member {
	mean := shardMean
	for mean > 1 && !b.fits(2*mean, 2*mean) {
		mean--
	}
	n := 1
	for n*mean < len(members) {
		n *= 2
	}
	for ; n <= maxShards; n *= 2 {
		shards := make([][]Member, n)
		for _, m := range members {
			i := shardOf(m.InstanceID, n)
			shards[i] = append(shards[i], m)
		}
		if !slices.ContainsFunc(shards, func(s []Member) bool { return !fits(s) }) {
			return shards
		}
	}
	return nil
}

// shardOf is rendezvous hashing: the shard whose score for the id is highest.
func shardOf(id string, n int) int {
	h, best, at := hash(id), uint64(0), 0
	for i := range n {
		if score := mix(h ^ mix(uint64(i)+1)); score > best {
			best, at = score, i
		}
	}
	return at
}

// topScored returns the n members of highest score: a machine that comes or goes changes at most one.
func topScored(members []Member, n int) []Member {
	sorted := slices.Clone(members)
	slices.SortStableFunc(sorted, func(a, b Member) int {
		return cmp.Compare(mix(hash(b.InstanceID)), mix(hash(a.InstanceID)))
	})
	return sorted[:min(n, len(sorted))]
}

// hash is FNV-1a. Published records depend on it: another function would move every value.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// mix spreads the bits of x (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
