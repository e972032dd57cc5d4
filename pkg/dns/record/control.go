package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The control record is one TXT set, _hardtack.<cluster>.<suffix>, that every change replaces. It is
// the only state between two calls:
//
//	owner=hardtack/<owner>     marks the records as Hardtack's, and as those of one fleet
//	generation=<value>         new with every change, so that a stale base never matches (the ABA problem); a long one
//	generation.<NN>=<value>    goes on in further values, since a string of a TXT record has 255 bytes (RFC 1035)
//	group=<role>/<name>        the groups of the last reading
//	vanished=<role>/<name>@<t> groups that are missing, and since when, in Unix seconds
const (
	controlLabel     = "_hardtack"
	generationPrefix = "generation="
	generationMore   = "generation."
	// generationPart is how many bytes of a generation one value holds, beside its prefix.
	generationPart = 230
	// maxGenerationValues is how many values a generation of MaxGeneration takes.
	maxGenerationValues = MaxGeneration / generationPart
	groupPrefix         = "group="
	vanishedPrefix      = "vanished="
	// maxVanished is how many vanished groups are stored by name; if there are more, only their roles are stored.
	maxVanished = 10
)

// MaxGeneration is the length in bytes of the longest generation.
const MaxGeneration = 8 * generationPart

// Generation returns the generation of a cluster's published records, if they have one.
func Generation(have []Set, cluster string) (string, bool) {
	for _, s := range have {
		if isControlOf(s, cluster) {
			return s.generation()
		}
	}
	return "", false
}

func (s Set) generation() (string, bool) {
	first, ok := "", false
	var more []string
	for _, v := range s.Values {
		if g, is := strings.CutPrefix(v, generationPrefix); is {
			first, ok = g, true
		} else if strings.HasPrefix(v, generationMore) {
			more = append(more, v)
		}
	}
	slices.Sort(more) // by their numbers
	for _, v := range more {
		_, part, _ := strings.Cut(v, "=")
		first += part
	}
	return first, ok
}

// generationValues returns the values that hold a generation.
func generationValues(generation string) []string {
	part := generation[:min(len(generation), generationPart)]
	out := []string{generationPrefix + part}
	for rest := generation[len(part):]; rest != ""; rest = rest[len(part):] {
		part = rest[:min(len(rest), generationPart)]
		out = append(out, fmt.Sprintf("%s%02d=%s", generationMore, len(out), part))
	}
	return out
}

// valuesWith returns what follows the prefix in the values that begin with it.
func (s Set) valuesWith(prefix string) []string {
	var out []string
	for _, v := range s.Values {
		if rest, ok := strings.CutPrefix(v, prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

// withoutGeneration returns the values except the generation, sorted.
func (s Set) withoutGeneration() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, v := range s.Values {
			if !strings.HasPrefix(v, generationPrefix) && !strings.HasPrefix(v, generationMore) && !yield(v) {
				return
			}
		}
	})
}

// plainName is what needs no quoting in any DNS server's or API's text form of a TXT record. With the longest role and
// prefix before it, maxPlain bytes of it fit one string of 255. Here as in a label, the length is not in the expression:
// repetitions with a count make programs of hundreds of kilobytes, at the start of whatever has this package.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]*$`)

const maxPlain = 200 // a name never has an @, which stands before a time

// groupKey is the key of a group in the control record. A name that is not plain, or not for the public, is replaced by
// its digest.
func (p Policy) groupKey(r role.Role, name string) string {
	if p.hidesNames() || len(name) > maxPlain || !plainName.MatchString(name) {
		sum := sha256.Sum256([]byte(name))
		name = "sha256:" + hex.EncodeToString(sum[:8])
	}
	return string(r) + "/" + name
}

// keyRole returns the role of a groupKey.
func keyRole(key string) role.Role {
	r, _, _ := strings.Cut(key, "/")
	return role.Role(r)
}

// keyName returns the name in a groupKey.
func keyName(key string) string {
	_, name, _ := strings.Cut(key, "/")
	return name
}

// vanished returns the groups that are missing, and since when.
func (s Set) vanished() map[string]time.Time {
	out := map[string]time.Time{}
	for _, v := range s.valuesWith(vanishedPrefix) {
		key, at, _ := strings.Cut(v, "@")
		seconds, _ := strconv.ParseInt(at, 10, 64) // none is long ago
		out[key] = time.Unix(seconds, 0).UTC()
	}
	return out
}

// LetGoAt returns when the first of the groups that are missing from the records of a cluster will be let go; zero if none is
// missing.
func LetGoAt(sets []Set, cluster string) time.Time {
	var first time.Time
	for _, s := range sets {
		if !isControlOf(s, cluster) {
			continue
		}
		for _, since := range s.vanished() {
			if due := since.Add(VanishAfter); first.IsZero() || due.Before(first) {
				first = due
			}
		}
	}
	return first
}
