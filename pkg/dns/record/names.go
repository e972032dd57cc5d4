package record

import (
	"slices"
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
	kindRole   // masters, minions, etcd
	kindShard  // minions-7
	kindMember // etcd-a
	kindSRV    // _etcd-server-ssl._tcp
	kindAPI    // api, api.internal
)

// identify returns the kind of a set's name, and the role that it belongs to (none for kindControl and kindForeign).
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
	if slices.Contains(role.All(), role.Role(rel)) {
		return kindRole, role.Role(rel)
	}
	// A member's name may be a number, so the etcd record is never sharded.
	if m, ok := strings.CutPrefix(rel, memberPrefix); ok && !strings.Contains(m, ".") {
		return kindMember, role.Etcd
	}
	base, number, ok := strings.Cut(rel, "-")
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 0 && number == strconv.Itoa(n) &&
		slices.Contains(role.All(), role.Role(base)) {
		return kindShard, role.Role(base)
	}
	return kindForeign, ""
}

// Managed reports whether Hardtack manages a set for the cluster. Any other set that a
// zone has, at or below the cluster's name, is foreign and never changed.
func Managed(s Set, cluster string, p Policy) bool {
	k, _ := identify(s, p.Domain(cluster))
	return k != kindForeign
}

// ManagedSets returns those of the sets that are Managed, sorted: what a reading has beside them is others'.
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
