package reconcile

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// generationVersion begins every generation; another one was written by something newer or by hand.
const generationVersion = "1"

// departureBuckets is how many times of departure a generation carries. Addresses share a bucket by
// hash, so an address can only seem to have left later than it did. A time takes seven characters in
// base 36 (six would end in 2038), and a TXT string holds 255.
const (
	departureBuckets = 30
	timeDigits       = 7
	// maxBurst bounds how far writes that follow each other spread out.
	maxBurst = 4
	// stormAddresses is how many changed addresses in one write are part of a storm.
	stormAddresses = 4
)

// generation is the value of the generation record. It is unique to one commit, which is what makes
// the compare-and-swap safe against records that change and change back; and it is the only memory
// that the reconcile has: when the records last changed, and when an address last left them.
type generation struct {
	committed time.Time // whole seconds
	burst     int       // how many writes before this one followed each other closely, up to maxBurst
	nonce     string
	left      [departureBuckets]int64 // Unix seconds; 0 for never
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
	if len(fields) != 5 || fields[0] != generationVersion || len(fields[4]) != timeDigits*departureBuckets {
		return g, fmt.Errorf("reading %q: %w", text, errGeneration)
	}
	committed, err := strconv.ParseInt(fields[1], 36, 64)
	if err != nil {
		return g, fmt.Errorf("reading the time in %q: %w", text, errGeneration)
	}
	if g.burst, err = strconv.Atoi(fields[2]); err != nil || g.burst < 0 || g.burst > maxBurst {
		return g, fmt.Errorf("reading the burst in %q: %w", text, errGeneration)
	}
	g.committed, g.nonce = time.Unix(committed, 0).UTC(), fields[3]
	for i := range g.left {
		if g.left[i], err = strconv.ParseInt(fields[4][timeDigits*i:timeDigits*(i+1)], 36, 64); err != nil {
			return generation{}, fmt.Errorf("reading the departures in %q: %w", text, errGeneration)
		}
	}
	return g, nil
}

// String is one TXT string, without characters that a zone file would escape.
func (g generation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.%s.%d.%s.", generationVersion, strconv.FormatInt(g.committed.Unix(), 36), g.burst, g.nonce)
	for _, at := range g.left {
		digits := strconv.FormatInt(at, 36)
		b.WriteString(strings.Repeat("0", timeDigits-len(digits)) + digits)
	}
	return b.String()
}

// pace is how long after this write the next one may follow: longer and longer while changes go on.
func (g generation) pace(first time.Duration) time.Duration {
	return first * time.Duration(max(1, g.burst))
}

// burstAt is the burst that a write at now belongs to that changes so many addresses. A few do not
// make a storm: they are worth a write of their own.
func (g generation) burstAt(now time.Time, first time.Duration, addresses int) int {
	switch {
	case g.committed.IsZero(), now.Sub(g.committed) > 2*g.pace(first)+first:
		return 0
	case addresses < stormAddresses:
		return g.burst
	default:
		return min(g.burst+1, maxBurst)
	}
}

// next is the generation of a commit at now that removes these addresses from every record.
func (g generation) next(now time.Time, nonce string, gone []string) generation {
	up := now.UTC().Add(time.Second - 1).Truncate(time.Second) // an address never seems to have left early
	n := generation{committed: up, burst: g.burst, nonce: nonce, left: g.left}
	for _, address := range gone {
		b := bucket(address)
		n.left[b] = max(n.left[b], up.Unix())
	}
	return n
}

// unreadableGeneration is the generation to continue from if the published one cannot be read: anything may have
// left just now.
func unreadableGeneration(now time.Time) generation {
	var g generation
	for i := range g.left {
		g.left[i] = now.Unix()
	}
	return g
}

// leftBy is a time by which the address had left the records, if it is not in them now. It may be
// later than the truth, never earlier.
func (g generation) leftBy(address string) time.Time {
	if at := g.left[bucket(address)]; at != 0 {
		return time.Unix(at, 0).UTC()
	}
	return time.Time{}
}

func bucket(address string) int {
	h := fnv.New32a()
	h.Write([]byte(address)) // never fails
	return int(h.Sum32() % departureBuckets)
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
