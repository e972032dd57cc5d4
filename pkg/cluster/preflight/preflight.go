// Package preflight judges whether an account is ready for a cluster before anything of it is made: who asks and what they may do,
// what the account's quotas leave, and whether machines in their subnets reach what they need.
//
// Its rule: values to values. It compares what was read (Facts) with what is wanted, and returns a list of all checks. A part that could
// not be read is a check that says so, and does not end the others.
package preflight

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// Facts are what was read of an account.
type Facts struct {
	Caller Caller
	// Decisions are IAM's simulated decisions on the calls of Needs.
	Decisions doctor.Known[[]Decision]
	Quotas    []Quota
	Network   Network
}

// Caller is who signs the calls.
type Caller struct {
	// ARN is what STS says, and Principal the user or role whose policies decide; empty for the account's root and for federated users,
	// whose policies IAM does not simulate.
	ARN, Principal string
	Account        string
}

// Judge makes the checks of facts.
func Judge(f Facts, w Wanted) doctor.List {
	l := list{policy: w.PolicyCommand}
	l.permissions(f.Caller, f.Decisions)
	l.quotas(f.Quotas)
	l.network(f.Network, w)
	return l.List
}

// Wanted is what the cluster needs of its network.
type Wanted struct {
	// Machines is how many machines there are at most, over all groups, and Subnets are theirs.
	Machines int
	Subnets  []string
	// Ranges are the addresses of pods and Services, by their fields in the document.
	Ranges map[string]string
	// Calls are what the machines call, as policies name them: ssm:GetParameter.
	Calls []string
	// Zone is the name of the private zone, and ZoneID that of one which another cluster has made; empty for one that the stack makes, and
	// Made is whether the stack made it already.
	Zone, ZoneID string
	Made         bool
	// PolicyCommand is the command that prints a policy with every permission.
	PolicyCommand string
}

// list collects the checks.
type list struct {
	doctor.List
	policy string
}

func (l *list) add(name string, state doctor.State, next, format string, args ...any) {
	l.List = append(l.List, doctor.Check{Name: name, State: state, Text: fmt.Sprintf(format, args...), Next: next})
}

func (l *list) ok(name, format string, args ...any) { l.add(name, doctor.OK, "", format, args...) }

// unread adds the check of a part that could not be read, and reports whether it could not.
func (l *list) unread(name string, err error) bool {
	if err == nil {
		return false
	}
	l.List = append(l.List, Unread(name, l.policy, err))
	return true
}

// Unread is the check of a part that could not be read: a warning where these credentials may not read it, since they may be enough for
// the rest. policy is a command that prints what has to be allowed.
func Unread(name, policy string, err error) doctor.Check {
	var r *doctor.Refused
	switch {
	case errors.As(err, &r):
		return doctor.Check{Name: name, State: doctor.Warning, Text: fmt.Sprintf("not known: %v", r.Err),
			Next: "allow " + r.Permission + " for these credentials: " + policy + " prints all that is needed"}
	case errors.Is(err, doctor.ErrUnread):
		return doctor.Check{Name: name, State: doctor.Warning, Text: "not known: " + err.Error(), Next: "see the check of the part that it depends on"}
	}
	return doctor.Check{Name: name, State: doctor.Error, Text: "not known: " + err.Error(), Next: "see that AWS can be reached from here, and try again"}
}

// most is how many names a text has before the rest are counted.
const most = 6

func names(all []string) string {
	if n := len(all); n > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", n-most)
	}
	return strings.Join(all, ", ")
}
