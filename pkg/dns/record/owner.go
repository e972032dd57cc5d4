package record

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The control record says whose the records are: owner=hardtack is Hardtack's and nobody's in particular, as new
// placeholders are, so that the first reconcile takes them; owner=hardtack/<owner> is one fleet's. Everything else is
// another program's.
const (
	ownerPrefix = "owner="
	ownerValue  = ownerPrefix + "hardtack"
)

// heritage begins the values by which external-dns marks what it keeps (its registry "txt"): a TXT record at the name
// itself, or at the name with the record's type before it, as in a-masters.demo.k8s.
const heritage = "heritage="

// ownerText returns the value of the control record for a fleet's owner.
func ownerText(owner string, p Policy) string {
	switch {
	case owner == "":
		return ownerValue
	case p.hidesNames() || len(owner) > maxPlain || !plainName.MatchString(owner):
		sum := sha256.Sum256([]byte(owner))
		owner = "sha256:" + hex.EncodeToString(sum[:8])
	}
	return ownerValue + "/" + owner
}

// hidesNames reports whether groups and owners are digests: in a public zone they are nobody's business.
func (p Policy) hidesNames() bool { return !p.Outputs.Roles }

// Marks reports whether a set is another program's mark on a name of the cluster: it says that the program keeps it.
func Marks(s Set, cluster string, p Policy) bool {
	return len(markedNames(s, p.Domain(cluster))) > 0
}

// Relevant reports whether a reconcile needs to know of a set: it is managed, or may be as one of an operator's own role, or
// is another's mark.
func Relevant(s Set, cluster string, p Policy) bool {
	k, _ := identify(s, p.Domain(cluster))
	return k != kindForeign || Marks(s, cluster, p)
}

// markedNames returns the names that may be ours and that a set marks as another's: its own, and the one that it has a record's
// type before, for "a-masters" may be a role as well. A name may be there more than once.
func markedNames(s Set, domain string) (marked []string) {
	if s.Type != TXT || len(s.valuesWith(heritage)) == 0 {
		return nil
	}
	names := []string{s.Name}
	for _, kind := range []string{A, AAAA, SRV, TXT, "CNAME"} {
		names = append(names, strings.TrimPrefix(s.Name, strings.ToLower(kind)+"-"))
	}
	for _, name := range names {
		if rel, ok := strings.CutSuffix(name, "."+domain); ok {
			if k, _ := identifyLabel(rel); k != kindForeign {
				marked = append(marked, name)
			}
		}
	}
	return marked
}

// checkOwner reports records that are not this fleet's to change: nothing may be changed then. With TakeOver it allows
// all but those that another program marks, since that one would take them back.
func (g *guard) checkOwner(have []Set) {
	g.checkMarks(have)
	if len(g.published) == 0 || g.policy.TakeOver {
		return
	}
	control := firstOrNone(g.published[controlLabel])
	switch owners := control.valuesWith(ownerPrefix); {
	case len(owners) == 0:
		var names []string
		for _, s := range managed(have, g.domain) {
			names = append(names, s.Name+" "+s.Type)
		}
		if n := len(names); n > 3 {
			names = append(names[:3], fmt.Sprintf("and %d more", n-3))
		}
		g.notOurs(fmt.Sprintf("%s: Hardtack needs the name, and there is no control record %s.%s that says that Hardtack made it",
			strings.Join(names, ", "), controlLabel, g.domain))
	case len(owners) > 1 || owners[0] != "hardtack" && !strings.HasPrefix(owners[0], "hardtack/"):
		g.notOurs("the records are another program's: the control record says " + ownerPrefix + strings.Join(owners, ", "+ownerPrefix))
	case owners[0] != "hardtack" && g.fleet.Owner != "" && ownerPrefix+owners[0] != ownerText(g.fleet.Owner, g.policy):
		_, theirs, _ := strings.Cut(owners[0], "/")
		_, ours, _ := strings.Cut(ownerText(g.fleet.Owner, g.policy), "/")
		g.notOurs(fmt.Sprintf("the records are those of the fleet %s, and this fleet is %s", theirs, ours))
	}
}

func (g *guard) notOurs(text string) {
	g.found.Add(problem.Problem{Rule: RuleNotOwned, Field: "cluster " + g.fleet.Cluster, Text: text,
		Hint: "nothing is changed; give this cluster another name, or take the records over: hardtack dns adopt"})
}

// checkMarks reports names of ours that external-dns says it keeps.
func (g *guard) checkMarks(have []Set) {
	var names []string
	by := map[string]string{}
	for _, s := range have {
		for _, name := range markedNames(s, g.domain) {
			if g.needs(name) {
				names = append(names, name)
				by[name] = s.valuesWith(heritage)[0]
			}
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		g.found.Add(problem.Problem{Rule: RuleNotOwned, Field: name,
			Text: "another program says that it keeps this name (" + heritage + by[name] + ")",
			Hint: "nothing is changed; take the name out of that program's sources, and remove its TXT record: it would change the name again"})
	}
}

// needs reports whether the name is published or wanted by us.
func (g *guard) needs(name string) bool {
	at := func(s Set) bool { return s.Name == name }
	for _, units := range []map[string][]Set{g.want, g.published} {
		for _, sets := range units {
			if slices.ContainsFunc(sets, at) {
				return true
			}
		}
	}
	return false
}

// claim returns the owner's value for the next control record: the fleet's own, or, of a fleet that does not say (it has no
// groups), the one that is there.
func (g *guard) claim() string {
	if last := firstOrNone(g.published[controlLabel]).valuesWith(ownerPrefix); g.fleet.Owner == "" && len(last) == 1 && !g.policy.TakeOver {
		return ownerPrefix + last[0]
	}
	return ownerText(g.fleet.Owner, g.policy)
}

// withoutRole splits off the groups whose role is not known: they have no records, and do not prevent those of others.
func (f Fleet) withoutRole() (with Fleet, without []Group) {
	with = f
	with.Groups = nil
	for _, g := range f.Groups {
		if _, err := role.Parse(string(g.Role)); err != nil {
			without = append(without, g)
		} else {
			with.Groups = append(with.Groups, g)
		}
	}
	return with, without
}
