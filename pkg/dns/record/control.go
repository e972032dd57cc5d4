package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The control record is one TXT set, _hardtack.<cluster>.<suffix>, that every change replaces. It is
// the only state between two calls:
//
//	owner=hardtack             marks the records as Hardtack's
//	generation=<value>         new with every change, so that a stale base never matches (the ABA problem); a long one
//	generation.<NN>=<value>    goes on in further values, since a string of a TXT record has 255 bytes (RFC 1035)
//	group=<role>/<name>        the groups of the last reading
//	vanished=<role>/<name>     groups that the last reading missed for the first time
const (
	controlLabel     = "_hardtack"
	ownerValue       = "owner=hardtack"
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
		if s.Type == TXT && strings.HasPrefix(s.Name, controlLabel+"."+cluster+".") {
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

const maxPlain = 200

// groupKey is the key of a group in the control record. A name that is not plain is replaced by its digest.
func groupKey(r role.Role, name string) string {
	if len(name) > maxPlain || !plainName.MatchString(name) {
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
