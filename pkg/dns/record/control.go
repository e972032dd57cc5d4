package record

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The control record is one TXT set, _hardtack.<cluster>.<suffix>, that every change replaces. It is
// the only state between two calls:
//
//	owner=hardtack             marks the records as Hardtack's
//	generation=<value>         new with every change, so that a stale base never matches (the ABA problem)
//	group=<role>/<name>        the groups of the last reading
//	vanished=<role>/<name>     groups that the last reading missed for the first time
const (
	controlLabel     = "_hardtack"
	ownerValue       = "owner=hardtack"
	generationPrefix = "generation="
	groupPrefix      = "group="
	vanishedPrefix   = "vanished="
	// maxVanished is how many vanished groups are stored by name; if there are more, only their roles are stored.
	maxVanished = 10
)

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
	for _, v := range s.Values {
		if g, ok := strings.CutPrefix(v, generationPrefix); ok {
			return g, true
		}
	}
	return "", false
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
			if !strings.HasPrefix(v, generationPrefix) && !yield(v) {
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
