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
// all that is remembered between two calls:
//
//	owner=hardtack             whose records these are
//	generation=<value>         a new one with every change, so that a stale base never matches (A-B-A)
//	group=<role>/<name>        the groups of the last reading
//	vanished=<role>/<name>     groups that the last reading missed for the first time
const (
	controlLabel     = "_hardtack"
	ownerValue       = "owner=hardtack"
	generationPrefix = "generation="
	groupPrefix      = "group="
	vanishedPrefix   = "vanished="
	// maxVanished is how many groups are remembered by name as missing; more are remembered by role.
	maxVanished = 10
)

// ControlName is the name of the control record: "_hardtack.demo.k8s.".
func ControlName(cluster string, p Policy) string { return controlLabel + "." + p.Domain(cluster) }

// Generation returns the generation of a cluster's records as they were read, if they have one.
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

// withoutGeneration returns the values that a change is decided on, sorted.
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

// groupKey names a group in the control record. A name that is not plain is there by its digest.
func groupKey(r role.Role, name string) string {
	if len(name) > maxPlain || !plainName.MatchString(name) {
		sum := sha256.Sum256([]byte(name))
		name = "sha256:" + hex.EncodeToString(sum[:8])
	}
	return string(r) + "/" + name
}

// keyRole is the role in a groupKey.
func keyRole(key string) role.Role {
	r, _, _ := strings.Cut(key, "/")
	return role.Role(r)
}
