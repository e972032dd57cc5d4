package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// generationVersion begins every generation; another one was written by something newer or by hand.
const generationVersion = "2"

// A departure takes five characters: three for the machine (its id's hash in base 36) and two for its age in seconds. So the
// newest of the last twenty minutes are there, as many as 300 machines a minute make while their hooks wait.
const (
	hashDigits    = 3
	ageDigits     = 2
	departureSize = hashDigits + ageDigits
	hashes        = 36 * 36 * 36
	maxAge        = 36*36 - 1
	// maxDepartures leaves room for the other fields.
	maxDepartures = (record.MaxGeneration - 60) / departureSize
	// maxBurst bounds how far writes that follow each other spread out.
	maxBurst = 4
	// stormAddresses is how many changed addresses in one write are part of a storm.
	stormAddresses = 4
)

// generation is the value of the generation record. It is unique to one commit, which is what makes
// the compare-and-swap safe against records that change and change back; and it is the only memory
// that the reconcile has: when the records last changed, and when a machine last left them.
type generation struct {
	committed time.Time // whole seconds
	burst     int       // how many writes before this one followed each other closely, up to maxBurst
	nonce     string
	left      []departure // the newest first, each hash once
	floor     int64       // what is not in left has left by then, in Unix seconds; 0 if it never was there
}

// departure is when an address of a machine left the records. It is the machine's and not the address's, which another
// machine may have soon. Machines of one hash share it, so one can only seem to have left later than it did.
type departure struct {
	hash int64
	at   int64 // Unix seconds
}

// NewGeneration returns a generation for records that are written without a Syncer: the placeholders of a new cluster.
// The random number makes it unique.
func NewGeneration(now time.Time, random uint64) string {
	return generation{}.next(now, strconv.FormatUint(random, 36), nil).String()
}

// GenerationTime returns when the records of this generation were committed.
func GenerationTime(text string) (time.Time, error) {
	g, err := parseGeneration(text)
	return g.committed, err
}

var errGeneration = errors.New("the generation record is not one that this version writes")

// parseGeneration reads what generation.String writes.
func parseGeneration(text string) (generation, error) {
	var g generation
	fields := strings.Split(text, ".")
	if len(fields) != 6 || fields[0] != generationVersion || len(fields[5])%departureSize != 0 {
		return generation{}, fmt.Errorf("reading %q: %w", text, errGeneration)
	}
	committed, err := strconv.ParseInt(fields[1], 36, 64)
	if err != nil {
		return generation{}, fmt.Errorf("reading the time in %q: %w", text, errGeneration)
	}
	if g.burst, err = strconv.Atoi(fields[2]); err != nil || g.burst < 0 || g.burst > maxBurst {
		return generation{}, fmt.Errorf("reading the burst in %q: %w", text, errGeneration)
	}
	g.committed, g.nonce = time.Unix(committed, 0).UTC(), fields[3]
	if g.floor, err = strconv.ParseInt(fields[4], 36, 64); err != nil {
		return generation{}, fmt.Errorf("reading the earlier departures in %q: %w", text, errGeneration)
	}
	for rest := fields[5]; rest != ""; rest = rest[departureSize:] {
		hash, err := strconv.ParseUint(rest[:hashDigits], 36, 32)
		age, err2 := strconv.ParseUint(rest[hashDigits:departureSize], 36, 32)
		if err != nil || err2 != nil {
			return generation{}, fmt.Errorf("reading the departures in %q: %w", text, errGeneration)
		}
		g.left = append(g.left, departure{int64(hash), committed - int64(age)})
	}
	return g, nil
}

// String is text without characters that a zone file would escape, at most record.MaxGeneration of them.
func (g generation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%s.%d.%s.%s.", generationVersion, strconv.FormatInt(g.committed.Unix(), 36), g.burst, g.nonce, strconv.FormatInt(g.floor, 36))
	digits := func(n int64, width int) {
		text := strconv.FormatInt(n, 36)
		b.WriteString(strings.Repeat("0", width-len(text)) + text)
	}
	for _, d := range g.left {
		digits(d.hash, hashDigits)
		digits(g.committed.Unix()-d.at, ageDigits)
	}
	return b.String()
}

// pace is how long after this write the next one may follow: longer and longer while changes go on.
func (g generation) pace(first time.Duration) time.Duration {
	return first * time.Duration(max(1, g.burst))
}

// burstAt is the burst that a write at now belongs to that changes so many addresses. A few do not
// make a storm: they are worth a write of their own. The first write of all follows on none.
func (g generation) burstAt(now time.Time, first time.Duration, addresses int) int {
	switch {
	case now.Sub(g.committed) > 2*g.pace(first)+first:
		return 0
	case addresses < stormAddresses:
		return g.burst
	default:
		return min(g.burst+1, maxBurst)
	}
}

// next is the generation of a commit at now that removes addresses of these machines.
func (g generation) next(now time.Time, nonce string, gone []string) generation {
	up := now.UTC().Add(time.Second - 1).Truncate(time.Second) // a machine never seems to have left early
	n := generation{committed: up, burst: g.burst, nonce: nonce}
	if up.Unix()-g.floor <= maxAge {
		n.floor = g.floor
	}
	seen := map[int64]bool{}
	for _, id := range gone {
		if h := hashOf(id); !seen[h] {
			seen[h] = true
			n.left = append(n.left, departure{h, up.Unix()})
		}
	}
	for _, d := range g.left {
		if !seen[d.hash] && up.Unix()-d.at <= maxAge {
			n.left = append(n.left, departure{d.hash, min(d.at, up.Unix())}) // another's clock may be ahead
		}
	}
	slices.SortFunc(n.left, func(a, b departure) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.hash, b.hash)) })
	if len(n.left) > maxDepartures {
		n.floor = max(n.floor, n.left[maxDepartures].at)
		n.left = n.left[:maxDepartures]
	}
	return n
}

// leftBy is a time by which the machine had left the records, if it is not in them now. It may be
// later than the truth, never earlier.
func (g generation) leftBy(id string) time.Time {
	at := g.floor
	if i := g.find(id); i >= 0 {
		at = g.left[i].at
	}
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(at, 0).UTC()
}

// find returns the index of a machine's departure, -1 if none is known.
func (g generation) find(id string) int {
	h := hashOf(id)
	return slices.IndexFunc(g.left, func(d departure) bool { return d.hash == h })
}

func hashOf(id string) int64 {
	h := fnv.New32a()
	h.Write([]byte(id)) // never fails
	return int64(h.Sum32() % hashes)
}

// addresses is every address that any of the sets publishes, with the number of sets that do.
func addresses(sets []record.Set) map[string]int {
	in := map[string]int{}
	for _, set := range sets {
		if set.Type == "A" || set.Type == "AAAA" {
			for _, v := range set.Values {
				in[v]++
			}
		}
	}
	return in
}

// removedAddresses lists the addresses that some set of have publishes and that fewer sets of want do. One that
// only moves between sets counts when it leaves one of them, since a client may hold that set.
func removedAddresses(have, want []record.Set) []string {
	after := addresses(want)
	var out []string
	for address, n := range addresses(have) {
		if after[address] < n {
			out = append(out, address)
		}
	}
	return out
}
