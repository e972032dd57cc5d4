package awsfake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Change is one change of a batch.
type Change struct {
	Action string // "CREATE", "DELETE", "UPSERT"
	Set    RecordSet
}

// PriorRequestNotComplete returns the refusal of a batch while Route 53 still processes the zone's last one. The
// account gives it only as a fault.
func PriorRequestNotComplete() *Error {
	return refuse("PriorRequestNotComplete", "The request was rejected because Route 53 was still processing a prior request.")
}

// ChangeResourceRecordSets carries out every change, in their order, or none. An *Error with the code
// InvalidChangeBatch lists the problems of a refused batch.
func (r *Route53) ChangeResourceRecordSets(ctx context.Context, zoneID string, changes []Change) (info ChangeInfo, err error) {
	err = r.account.do(ctx, "route53", "ChangeResourceRecordSets", func(now time.Time) error {
		info, err = r.apply(zoneID, changes, now)
		return err
	})
	return info, err
}

func (r *Route53) apply(zoneID string, changes []Change, now time.Time) (ChangeInfo, error) {
	z, err := r.find(zoneID)
	if err != nil {
		return ChangeInfo{}, err
	}
	if len(changes) == 0 {
		return ChangeInfo{}, refuse("InvalidInput", "1 validation error detected: Value '[]' at 'changeBatch.changes' failed to satisfy constraint: Member must have length greater than or equal to 1")
	}
	changes, err = normalChanges(z.Name, changes)
	if err != nil {
		return ChangeInfo{}, err
	}
	b := trial{zone: z.Name, sets: slices.Clone(z.sets), done: map[string]string{}}
	for _, c := range changes {
		b.change(c)
	}
	b.checkApex()
	if len(b.sets) > maxZoneSets {
		b.problem("Exceeded limit MAX_RRSETS_BY_ZONE for zone: %s", z.ID)
	}
	if len(b.problems) > 0 {
		return ChangeInfo{}, invalidBatch(b.problems)
	}
	z.sets = b.sets
	return r.submitted(now), nil
}

// invalidBatch is the refusal with every problem, as Route 53 writes them.
func invalidBatch(problems []string) *Error {
	return refuse("InvalidChangeBatch", "%s", "["+strings.Join(problems, ", ")+"]")
}

// normalChanges checks everything that does not depend on the zone's contents, and returns the changes with names as
// Route 53 spells them.
func normalChanges(zoneName string, changes []Change) ([]Change, error) {
	if problems := checkSize(changes); len(problems) > 0 {
		return nil, invalidBatch(problems)
	}
	normal := make([]Change, len(changes))
	var problems []string
	for i, c := range changes {
		if err := checkForm(i+1, c); err != nil {
			return nil, err
		}
		name, problem := normalName(c.Set.Name)
		switch {
		case problem != "":
			problems = append(problems, problem)
		case !within(name, zoneName):
			problems = append(problems, fmt.Sprintf("RRSet with DNS name %s is not permitted in zone %s", name, zoneName))
		case c.Set.Type == "CNAME" && name == zoneName:
			problems = append(problems, fmt.Sprintf("RRSet of type CNAME with DNS name %s is not permitted at apex in zone %s", name, zoneName))
		case c.Set.Type == "SOA" && name != zoneName:
			problems = append(problems, fmt.Sprintf("RRSet of type SOA with DNS name %s is not permitted in zone %s", name, zoneName))
		}
		problems = append(problems, checkValues(c.Set)...)
		normal[i] = c
		normal[i].Set.Name = name
		normal[i].Set.Values = slices.Clone(c.Set.Values)
	}
	if len(problems) > 0 {
		return nil, invalidBatch(problems)
	}
	return normal, nil
}

// checkSize checks the quotas of one request.
func checkSize(changes []Change) (problems []string) {
	values, characters := 0, 0
	for _, c := range changes {
		times := 1
		if c.Action == "UPSERT" {
			times = 2
		}
		values += times * len(c.Set.Values)
		for _, value := range c.Set.Values {
			characters += times * len([]rune(value))
		}
	}
	if values > maxBatchValues {
		problems = append(problems, fmt.Sprintf("Number of records limit of %d exceeded.", maxBatchValues))
	}
	if characters > maxBatchCharacters {
		problems = append(problems, fmt.Sprintf("RDATA character limit of %d exceeded.", maxBatchCharacters))
	}
	return problems
}

// checkForm refuses a change that violates the request's schema.
func checkForm(number int, c Change) error {
	invalid := func(value any, member, constraint string) error {
		return refuse("InvalidInput", "1 validation error detected: Value '%v' at 'changeBatch.changes.%d.member.%s' failed to satisfy constraint: %s", value, number, member, constraint)
	}
	s := c.Set
	switch {
	case c.Action != "CREATE" && c.Action != "DELETE" && c.Action != "UPSERT":
		return invalid(c.Action, "action", "Member must satisfy enum value set: [DELETE, CREATE, UPSERT]")
	case recordTypes[s.Type] == nil:
		return invalid(s.Type, "resourceRecordSet.type", "Member must be a type that awsfake models")
	case s.TTL < 0:
		return invalid(s.TTL, "resourceRecordSet.tTL", "Member must have value greater than or equal to 0")
	case s.TTL > 1<<31-1:
		return invalid(s.TTL, "resourceRecordSet.tTL", "Member must have value less than or equal to 2147483647")
	case len(s.Values) == 0:
		return invalid("[]", "resourceRecordSet.resourceRecords", "Member must have length greater than or equal to 1")
	}
	return nil
}

// trial is a copy of a zone's contents on which a batch is tried.
type trial struct {
	zone string
	sets []RecordSet
	// done is the action that a set has already seen in this batch, by its key.
	done     map[string]string
	problems []string
}

func (b *trial) change(c Change) {
	s := c.Set
	key := s.Name + " " + s.Type
	// A set may be replaced within a batch, by DELETE and then CREATE; any other pair is refused.
	before, again := b.done[key]
	if again && (before != "DELETE" || c.Action != "CREATE") {
		b.problem("The request contains an invalid set of changes for a resource record set '%s %s'", s.Type, s.Name)
		return
	}
	b.done[key] = c.Action
	if again {
		b.done[key] = "replaced"
	}
	at, found := slices.BinarySearchFunc(b.sets, s, compareSets)
	switch {
	case c.Action == "DELETE" && !found:
		b.problem("Tried to delete resource record set %s but it was not found", bracket(s))
	case c.Action == "DELETE" && !same(b.sets[at], s):
		b.problem("Tried to delete resource record set %s but the values provided do not match the current values", bracket(s))
	case c.Action == "DELETE":
		b.sets = slices.Delete(b.sets, at, at+1)
	case c.Action == "CREATE" && found:
		b.problem("Tried to create resource record set %s but it already exists", bracket(s))
	case found:
		b.sets[at] = s
	case b.fits(s):
		b.sets = slices.Insert(b.sets, at, s)
	}
}

// fits reports whether a set can exist beside the zone's others, and notes the problem if not.
func (b *trial) fits(s RecordSet) bool {
	for _, other := range b.sets {
		if other.Name != s.Name {
			continue
		}
		switch {
		case other.Type == "CNAME":
			b.problem("RRSet of type %s with DNS name %s is not permitted because a conflicting RRSet of type CNAME with the same DNS name already exists in zone %s", s.Type, s.Name, b.zone)
		case s.Type == "CNAME":
			b.problem("RRSet of type CNAME with DNS name %s is not permitted as it conflicts with other records with the same DNS name in zone %s", s.Name, b.zone)
		default:
			continue
		}
		return false
	}
	return true
}

// checkApex refuses a batch that takes the zone's own SOA or NS away.
func (b *trial) checkApex() {
	has := func(kind string) bool {
		return slices.ContainsFunc(b.sets, func(s RecordSet) bool { return s.Name == b.zone && s.Type == kind })
	}
	if !has("SOA") {
		b.problem("A HostedZone must contain exactly one SOA record.")
	}
	if !has("NS") {
		b.problem("A HostedZone must contain at least one NS record for the zone itself.")
	}
}

func (b *trial) problem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// bracket names a set as Route 53's messages do.
func bracket(s RecordSet) string {
	return fmt.Sprintf("[name='%s', type='%s']", s.Name, s.Type)
}

// same reports whether a DELETE's set is the zone's: its TTL, and its values in any order.
func same(a, b RecordSet) bool {
	return a.TTL == b.TTL && slices.Equal(slices.Sorted(slices.Values(a.Values)), slices.Sorted(slices.Values(b.Values)))
}
