package zone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

const (
	// bindSetValues is max-records-per-type of BIND since 9.18.28: the 101st record of a set makes it
	// refuse the whole update.
	bindSetValues = 100
	// messageBytes is all that a DNS message over TCP holds.
	messageBytes = 65535
	// updateValues keeps an update within one message: an AAAA record takes 28 bytes once its name is
	// compressed, an SRV record less than 40 with short member names.
	updateValues = 1500
	// dnsTimeout is for one exchange, or one message of a transfer.
	dnsTimeout = 10 * time.Second
)

// RFC2136Config is the configuration of an RFC2136. Server and Policy are required.
type RFC2136Config struct {
	// Server is the primary's host or host:port; the port is 53 when it is left out.
	Server string
	// Key signs the requests; without one the server has to trust the client's address.
	Key Key
	// Policy is the policy of the records; its suffix is the zone's name.
	Policy record.Policy
	// SetValues is the server's own limit of records in a set; 0 is BIND's default of 100, below 0 none.
	SetValues int
	// Timeout bounds one exchange; 0 is 10 s.
	Timeout time.Duration
}

// RFC2136 is a Zone on a server that accepts dynamic updates. It reads by a zone transfer, which is one consistent
// state; a change is one update whose prerequisites are all the records that it replaces. A TTL cannot be a
// prerequisite: a base that only differs in a TTL is detected by its generation.
type RFC2136 struct {
	server, zone string
	key          Key
	policy       record.Policy
	limits       record.Limits
	timeout      time.Duration
	last         *transferred
}

// transferred is the last transfer of a zone. As long as the zone's serial is the same, it is what a transfer would give.
type transferred struct {
	mu     sync.Mutex
	rrs    []dns.RR // nil if there is none
	serial uint32
	at     time.Time
}

// transferFor is how long a transfer is used at most, for servers that change a zone without another serial.
const transferFor = 5 * time.Minute

var _ prepare.Zone = (*RFC2136)(nil)

// NewRFC2136 checks the configuration; it opens no connection.
func NewRFC2136(c RFC2136Config) (*RFC2136, error) {
	if c.Server == "" {
		return nil, errors.New("choosing a DNS server: name the primary of the zone as host or host:port")
	}
	server := c.Server
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(strings.Trim(server, "[]"), "53")
	}
	z := &RFC2136{
		server: server, zone: dns.CanonicalName(cmp.Or(c.Policy.Suffix, record.DefaultSuffix)),
		key: c.Key, policy: c.Policy, timeout: cmp.Or(c.Timeout, dnsTimeout),
		last:   &transferred{},
		limits: record.Limits{SetValues: max(0, cmp.Or(c.SetValues, bindSetValues)), BatchValues: updateValues},
	}
	return z, nil
}

// ID is empty: a server knows its zones by their names.
func (z *RFC2136) ID() string { return "" }

// Signer says how requests are signed; "" is not at all.
func (z *RFC2136) Signer() string {
	if z.key.Name == "" {
		return ""
	}
	return "key " + z.key.Name
}

// Limits are the server's for a set, and what one message holds.
func (z *RFC2136) Limits() record.Limits { return z.limits }

// Read transfers the zone, unless its serial is that of the last transfer, and returns the cluster's sets, sorted by name
// and type.
func (z *RFC2136) Read(ctx context.Context, cluster string) ([]record.Set, error) {
	rrs, err := z.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading zone %s from %s: %w", z.zone, z.server, err)
	}
	return z.sets(rrs, cluster)
}

// current returns every record of the zone as it is now.
func (z *RFC2136) current(ctx context.Context) ([]dns.RR, error) {
	z.last.mu.Lock()
	defer z.last.mu.Unlock()
	if z.last.rrs != nil && time.Since(z.last.at) < transferFor {
		if soa, err := z.soa(ctx); err == nil && soa.Serial == z.last.serial {
			return z.last.rrs, nil
		} // else the transfer says what is wrong
	}
	rrs, err := z.transfer(ctx)
	if err != nil {
		return nil, err
	}
	if soa, ok := rrs[0].(*dns.SOA); ok { // a transfer begins with it (RFC 5936)
		z.last.rrs, z.last.serial, z.last.at = rrs, soa.Serial, time.Now()
	}
	return rrs, nil
}

// forget drops the last transfer: an update follows, or somebody else's was before.
func (z *RFC2136) forget() {
	z.last.mu.Lock()
	defer z.last.mu.Unlock()
	z.last.rrs = nil
}

// sets collects a transfer's records by name and type.
func (z *RFC2136) sets(rrs []dns.RR, cluster string) ([]record.Set, error) {
	var out []record.Set
	index := map[[2]string]int{}
	domain := z.policy.Domain(cluster)
	for _, rr := range rrs {
		h := rr.Header()
		name := dns.CanonicalName(h.Name)
		if !below(name, domain) {
			continue
		}
		if h.Rrtype == dns.TypeCNAME && mayBeManaged(name, cluster, z.policy) {
			return nil, fmt.Errorf("reading zone %s: %w", z.zone, foreignError(name, "a CNAME"))
		}
		s := record.Set{Name: name, Type: dns.TypeToString[h.Rrtype], TTL: time.Duration(h.Ttl) * time.Second}
		key := [2]string{s.Name, s.Type}
		i, seen := index[key]
		if !seen {
			i = len(out)
			index[key], out = i, append(out, s)
		}
		out[i].Values = append(out[i].Values, valueOf(rr))
	}
	out = slices.DeleteFunc(out, func(s record.Set) bool { return !record.Relevant(s, cluster, z.policy) })
	for _, s := range out {
		slices.Sort(s.Values)
	}
	slices.SortFunc(out, func(a, b record.Set) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type))
	})
	return out, nil
}

// CompareAndSwap sends one update. Its prerequisites are the exact records of every set of remove, and
// that neither the type of a new set nor a CNAME is at its name (an update would pass over a CNAME in
// silence).
func (z *RFC2136) CompareAndSwap(ctx context.Context, cluster string, remove, create []record.Set) error {
	if len(remove) == 0 && len(create) == 0 {
		return nil
	}
	if err := overLimit(create, z.limits, "the server's limit (BIND: max-records-per-type)"); err != nil {
		return fmt.Errorf("changing the records of %s: %w", cluster, err)
	}
	defer z.forget()
	m, err := z.update(remove, create)
	if err != nil {
		return fmt.Errorf("changing the records of %s: %w", cluster, err)
	}
	if n := m.Len(); n > messageBytes-512 {
		return fmt.Errorf("changing the records of %s: the update takes %d bytes and a DNS message holds %d", cluster, n, messageBytes)
	}
	if err := z.commit(ctx, m, create); err != nil {
		return fmt.Errorf("changing the records of %s on %s: %w", cluster, z.server, err)
	}
	return nil
}

// update makes the message. The library's methods write to the records they are given, so that each
// section gets records of its own.
func (z *RFC2136) update(remove, create []record.Set) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetUpdate(z.zone)
	m.Compress = true
	held := map[[2]string]bool{}
	for _, s := range remove {
		held[[2]string{s.Name, s.Type}] = true
		same, err := newRRs(s)
		if err != nil {
			return nil, err
		}
		m.Used(same)
		m.RemoveRRset([]dns.RR{emptySet(s.Name, dns.StringToType[s.Type])})
	}
	guarded := map[string]bool{}
	for _, s := range create {
		fresh, err := newRRs(s)
		if err != nil {
			return nil, err
		}
		if !held[[2]string{s.Name, s.Type}] {
			m.RRsetNotUsed([]dns.RR{emptySet(s.Name, dns.StringToType[s.Type])})
			if !guarded[s.Name] {
				guarded[s.Name] = true
				m.RRsetNotUsed([]dns.RR{emptySet(s.Name, dns.TypeCNAME)})
			}
		}
		m.Insert(fresh)
	}
	return m, nil
}
