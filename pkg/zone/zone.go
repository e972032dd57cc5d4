// Package zone keeps record sets in a DNS service: Route 53, or any server that takes RFC 2136 updates.
//
// Its rule: a change is one request that the service carries out whole or not at all, and only when
// the zone still is what was read. What the service answers becomes one of dnssync's errors or an
// error that says what a person has to do; nothing is tried again in here.
package zone

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

// foreignError is a record of someone else's that stands where one of ours belongs.
func foreignError(name, what string) error {
	return fmt.Errorf("%s has %s that Hardtack did not make: remove it, or give the cluster another name", name, what)
}

// below reports whether name is domain or below it; both end with a dot.
func below(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// claims reports whether any set of this name would be one of the cluster's.
func claims(name, cluster string, p record.Policy) bool {
	for _, kind := range []string{record.A, record.SRV, record.TXT} {
		if record.Keeps(record.Set{Name: name, Type: kind}, cluster, p) {
			return true
		}
	}
	return false
}

// title is a set in errors: "masters.demo.k8s. A".
func title(s record.Set) string { return s.Name + " " + s.Type }

// overLimit is the error for a set that the service would refuse; limit says whose limit it is.
func overLimit(sets []record.Set, l record.Limits, limit string) error {
	for _, s := range sets {
		if l.SetValues > 0 && len(s.Values) > l.SetValues {
			return fmt.Errorf("%s would have %d values, over %s of %d a set", title(s), len(s.Values), limit, l.SetValues)
		}
	}
	return nil
}
