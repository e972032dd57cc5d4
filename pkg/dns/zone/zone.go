// Package zone keeps record sets in a DNS service: Route 53, or any server that accepts RFC 2136 updates.
//
// Its rule: a change is one atomic request, which succeeds only if the zone is still as it was read. The service's
// replies become the errors of pkg/dns/reconcile, or errors that say what the operator has to do. Nothing is retried
// here.
package zone

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// foreignError is the error for a foreign record at a name that Hardtack needs.
func foreignError(name, what string) error {
	return fmt.Errorf("%s has %s that Hardtack did not make: remove it, or give the cluster another name", name, what)
}

// below reports whether name is domain or below it; both end with a dot.
func below(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// mayBeManaged reports whether a set of this name could be a managed one of the cluster.
func mayBeManaged(name, cluster string, p record.Policy) bool {
	for _, kind := range []string{record.A, record.SRV, record.TXT} {
		if record.Managed(record.Set{Name: name, Type: kind}, cluster, p) {
			return true
		}
	}
	return false
}

// setTitle is a set in errors: "masters.demo.k8s. A".
func setTitle(s record.Set) string { return s.Name + " " + s.Type }

// overLimit is the error for a set that the service would refuse; limit says whose limit it is.
func overLimit(sets []record.Set, l record.Limits, limit string) error {
	for _, s := range sets {
		if l.SetValues > 0 && len(s.Values) > l.SetValues {
			return fmt.Errorf("%s would have %d values, over %s of %d a set", setTitle(s), len(s.Values), limit, l.SetValues)
		}
	}
	return nil
}
