package awsfake

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

// Start is where a page of record sets begins; the zero Start is the zone's first set.
type Start struct{ Name, Type string }

// Page is one page of record sets.
type Page struct {
	Sets []RecordSet
	// Next is where the following page begins; nil after the last one.
	Next *Start
}

// ListResourceRecordSets returns up to limit sets (at most 300; 0 is 300) in Route 53's order. Each page is read from
// the zone's current state: a batch between two pages shows only in the second.
func (r *Route53) ListResourceRecordSets(ctx context.Context, zoneID string, from Start, limit int) (page Page, err error) {
	err = r.account.do(ctx, "route53", "ListResourceRecordSets", func(time.Time) error {
		page, err = r.list(zoneID, from, limit)
		return err
	})
	return page, err
}

func (r *Route53) list(zoneID string, from Start, limit int) (Page, error) {
	z, err := r.find(zoneID)
	if err != nil {
		return Page{}, err
	}
	if from.Name == "" && from.Type != "" {
		return Page{}, refuse("InvalidInput", "The request must specify a name when it specifies a type.")
	}
	sets := z.sets
	first := 0
	if from.Name != "" {
		name, problem := normalName(from.Name)
		if problem != "" {
			return Page{}, refuse("InvalidInput", "%s", problem)
		}
		start := RecordSet{Name: name, Type: from.Type}
		first, _ = slices.BinarySearchFunc(sets, start, compareSets)
	}
	if limit <= 0 || limit > maxListedSets {
		limit = maxListedSets
	}
	end := min(first+limit, len(sets))
	page := Page{Sets: slices.Clone(sets[first:end])}
	if end < len(sets) {
		next := sets[end]
		page.Next = &Start{next.Name, next.Type}
	}
	return page, nil
}

// byName are the zones in the order of ListHostedZonesByName: reversed name, then identifier.
func (r *Route53) byName() []*zone {
	zones := make([]*zone, 0, len(r.zones))
	for _, z := range r.zones {
		zones = append(zones, z)
	}
	slices.SortFunc(zones, func(a, b *zone) int {
		return cmp.Or(compareNames(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return zones
}
