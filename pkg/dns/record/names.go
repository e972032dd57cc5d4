package record

import (
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The record types that Hardtack manages.
const (
	A    = "A"
	AAAA = "AAAA"
	SRV  = "SRV"
	TXT  = "TXT"
)

// The labels and prefixes of names that are not a role's.
const (
	apiPublic    = "api"
	apiInternal  = "api.internal"
	memberPrefix = role.MemberPrefix
	serverSRV    = "_etcd-server-ssl._tcp"
	clientSRV    = "_etcd-client-ssl._tcp"
	countPrefix  = "count="
	shardsPrefix = "shards="
)

// nameKind is the kind of a name below a cluster's domain.
type nameKind int

const (
	kindForeign nameKind = iota
	kindControl
	kindRole   // masters, minions, etcd, and an operator's own
	kindShard  // minions-7
	kindMember // etcd-a
	kindSRV    // _etcd-server-ssl._tcp
	kindAPI    // api, api.internal
)

// identify returns the kind of a set's name, and the role that it belongs to (none for kindControl and kindForeign). A name of
// an operator's own role is one of the cluster's only where claims has it.
func identify(s Set, domain string) (nameKind, role.Role) {
	rel, ok := strings.CutSuffix(s.Name, "."+domain)
	if !ok {
		return kindForeign, ""
	}
	k, r := identifyLabel(rel)
	address := s.Type == A || s.Type == AAAA
	switch k {
	case kindControl:
		ok = s.Type == TXT
	case kindSRV:
		ok = s.Type == SRV
	case kindRole, kindAPI:
		ok = address || s.Type == TXT && len(s.valuesWith(countPrefix)) > 0
	case kindShard, kindMember:
		ok = address
	}
	if !ok {
		return kindForeign, ""
	}
	return k, r
}

func identifyLabel(rel string) (nameKind, role.Role) {
	switch rel {
	case controlLabel:
		return kindControl, ""
	case serverSRV, clientSRV:
		return kindSRV, role.Etcd
	case apiPublic, apiInternal:
		return kindAPI, role.Masters
	}
	if r, err := role.Parse(rel); err == nil {
		return kindRole, r
	}
	// A member's name may be a number, so the etcd record is never sharded.
	if m, ok := strings.CutPrefix(rel, memberPrefix); ok && !strings.Contains(m, ".") {
		return kindMember, role.Etcd
	}
	at := max(0, strings.LastIndex(rel, "-"))
	base, number := rel[:at], strings.TrimPrefix(rel[at:], "-")
	if n, _ := strconv.Atoi(number); number == strconv.Itoa(n) {
		if r, err := role.Parse(base); err == nil {
			return kindShard, r
		}
	}
	return kindForeign, ""
}

// Managed reports whether Hardtack manages a set for every cluster of the name: of all that it manages, what has one of
// Hardtack's names. Of the names of an operator's own roles, ManagedSets knows.
func Managed(s Set, cluster string, p Policy) bool {
	k, r := identify(s, p.Domain(cluster))
	return k != kindForeign && (r == "" || r.Known())
}

// claims returns the roles whose names are the cluster's even if they are an operator's own: those that the control record among
// the sets remembers. Any label may be such a role, and a record of somebody else's.
func claims(sets []Set, domain string) map[role.Role]bool {
	claimed := map[role.Role]bool{}
	for _, s := range sets {
		if s.Type != TXT || s.Name != controlLabel+"."+domain {
			continue
		}
		keys := s.valuesWith(groupPrefix)
		for key := range s.vanished() {
			keys = append(keys, key)
		}
		for _, key := range keys {
			claimed[keyRole(key)] = true
		}
	}
	return claimed
}

// ours reports whether a set is the cluster's.
func ours(s Set, domain string, claimed map[role.Role]bool) bool {
	k, r := identify(s, domain)
	return k != kindForeign && (r == "" || r.Known() || claimed[r])
}

// ManagedSets returns those of the sets that Hardtack manages for the cluster, sorted. Any other set that a zone has, at or
// below the cluster's name, is foreign and never changed.
func ManagedSets(have []Set, cluster string, p Policy) []Set { return managed(have, p.Domain(cluster)) }

// Leaving reports whether a machine in this state is being terminated or was set aside on purpose, so that its address
// must be removed even if it is the last one.
func (l Lifecycle) Leaving() bool {
	state, _, _ := strings.Cut(string(l), ":")
	switch state {
	case "Terminating", "Terminated", "Detaching", "Detached", "EnteringStandby", "Standby", "Warmed":
		return true
	}
	return false
}
