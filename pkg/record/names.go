package record

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The types of records that are kept.
const (
	A    = "A"
	AAAA = "AAAA"
	SRV  = "SRV"
	TXT  = "TXT"
)

// Labels of names that no role spells.
const (
	apiPublic    = "api"
	apiInternal  = "api.internal"
	memberPrefix = string(role.Etcd) + "-"
	serverSRV    = "_etcd-server-ssl._tcp"
	clientSRV    = "_etcd-client-ssl._tcp"
	peerPort     = 2380
	clientPort   = 2379
	countPrefix  = "count="
	shardsPrefix = "shards="
)

// kind is what a name below a cluster's domain stands for.
type kind int

const (
	foreign kind = iota
	control
	primary // masters, minions, etcd
	shard   // minions-7
	member  // etcd-a
	service // _etcd-server-ssl._tcp
	api     // api, api.internal
)

// identify says what a set is in the domain and which role it follows (none for control and foreign).
func identify(s Set, domain string) (kind, role.Role) {
	rel, ok := strings.CutSuffix(s.Name, "."+domain)
	if !ok {
		return foreign, ""
	}
	k, r := identifyLabel(rel)
	address := s.Type == A || s.Type == AAAA
	switch k {
	case control:
		ok = s.Type == TXT
	case service:
		ok = s.Type == SRV
	case primary, api:
		ok = address || s.Type == TXT && len(s.valuesWith(countPrefix)) > 0
	case shard, member:
		ok = address
	}
	if !ok {
		return foreign, ""
	}
	return k, r
}

func identifyLabel(rel string) (kind, role.Role) {
	switch rel {
	case controlLabel:
		return control, ""
	case serverSRV, clientSRV:
		return service, role.Etcd
	case apiPublic, apiInternal:
		return api, role.Masters
	}
	if slices.Contains(role.All(), role.Role(rel)) {
		return primary, role.Role(rel)
	}
	// A member's name may be a number, so the etcd record is never sharded.
	if m, ok := strings.CutPrefix(rel, memberPrefix); ok && !strings.Contains(m, ".") {
		return member, role.Etcd
	}
	base, number, ok := strings.Cut(rel, "-")
	if n, err := strconv.Atoi(number); ok && err == nil && n >= 0 && number == strconv.Itoa(n) &&
		slices.Contains(role.All(), role.Role(base)) {
		return shard, role.Role(base)
	}
	return foreign, ""
}

// Keeps reports whether a set is one of those that are kept for the cluster. Any other set that a
// zone has, at or below the cluster's name, belongs to someone else and is never touched.
func Keeps(s Set, cluster string, p Policy) bool {
	k, _ := identify(s, p.Domain(cluster))
	return k != foreign
}

// Leaving reports whether a machine in this state is on its way out or aside by intent, so that its
// address must leave the records even when it is the last one.
func (l Lifecycle) Leaving() bool {
	state, _, _ := strings.Cut(string(l), ":")
	switch state {
	case "Terminating", "Terminated", "Detaching", "Detached", "EnteringStandby", "Standby", "Warmed":
		return true
	}
	return false
}
