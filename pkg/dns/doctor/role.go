package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// Trial is a call that the function's role should be allowed or denied.
type Trial struct {
	Path     string // "role.records"
	Actions  []string
	Resource string
	// Context has the values of condition keys in the call.
	Context map[string][]string
	Allowed bool
	// What describes the call: "writing the records of demo".
	What string
}

// Decision is IAM's simulated decision on an action of a trial: "allowed", "implicitDeny" or "explicitDeny".
type Decision struct {
	Trial
	Action, Decision string
	// Missing are condition keys that the policies use and the trial does not set.
	Missing []string
}

// Place is the account and region of the function.
type Place struct{ Partition, Region, Account string }

// PlaceOf parses an ARN, such as the function's.
func PlaceOf(arn string) (Place, error) {
	parts := strings.Split(arn, ":")
	if len(parts) < 6 || parts[0] != "arn" {
		return Place{}, fmt.Errorf("reading %q: it is no ARN", arn)
	}
	return Place{parts[1], parts[3], parts[4]}, nil
}

// The condition keys of ChangeResourceRecordSets.
const (
	keyNames   = "route53:ChangeResourceRecordSetsNormalizedRecordNames"
	keyTypes   = "route53:ChangeResourceRecordSetsRecordTypes"
	keyActions = "route53:ChangeResourceRecordSetsActions"
	keyRegion  = "aws:RequestedRegion"
)

// Multivalued reports whether the condition key has several values.
func Multivalued(key string) bool { return key != keyRegion }

// Foreign resources, for trials that must be denied.
const (
	otherCluster = "not-of-hardtack-doctor"
	otherZone    = "ZNOTOFHARDTACKDOCTOR"
	// anyGroup is the id in a group's ARN, which only AWS knows; the template has a wildcard there.
	anyGroup = "00000000-0000-0000-0000-000000000000"
)

// Trials returns the calls that the function makes, which the template's policy allows, and calls that must be denied.
// Those about the queue and the log group are left out if they are empty.
func Trials(s Settings, p Place, queueARN, logGroup string, d *shipped.Deployment) []Trial {
	actions := func(sid string) []string {
		statement, _ := d.Statement(sid) // a test asserts that each exists
		return statement.Action
	}
	list := zoneTrials(s, p, actions)
	here := map[string][]string{keyRegion: {p.Region}}
	list = append(list, Trial{Path: "role.fleet", Actions: actions("ReadTheFleet"), Resource: "*", Context: here, Allowed: true, What: "reading the groups and machines"})
	for _, g := range s.AllGroups() {
		list = append(list, Trial{Path: "role.hooks", Actions: actions("FinishHooks"), Resource: p.group(g), Context: here,
			Allowed: true, What: "completing the hooks of " + g})
	}
	list = append(list,
		Trial{Path: "role.hooks", Actions: actions("FinishHooks"), Resource: p.group(otherCluster), Context: here, What: "completing the hooks of other groups"},
		Trial{Path: "role.other", Actions: []string{"autoscaling:TerminateInstanceInAutoScalingGroup", "ec2:TerminateInstances", "iam:PassRole"}, Resource: "*", Context: here, What: "ending machines and passing roles"})
	if queueARN != "" {
		list = append(list, Trial{Path: "role.queue", Actions: actions("ReadAndRemind"), Resource: queueARN, Allowed: true, What: "reading the queue and sending reminders"})
	}
	if logGroup != "" {
		list = append(list, Trial{Path: "role.log", Actions: actions("Log"), Allowed: true, What: "logging",
			Resource: fmt.Sprintf("arn:%s:logs:%s:%s:log-group:%s:log-stream:hardtack-doctor", p.Partition, p.Region, p.Account, logGroup)})
	}
	return list
}

func (p Place) group(name string) string {
	return fmt.Sprintf("arn:%s:autoscaling:%s:%s:autoScalingGroup:%s:autoScalingGroupName/%s", p.Partition, p.Region, p.Account, anyGroup, name)
}

func zoneTrials(s Settings, p Place, actions func(sid string) []string) []Trial {
	arn := func(zone string) string { return fmt.Sprintf("arn:%s:route53:::hostedzone/%s", p.Partition, zone) }
	write := actions("ReplaceTheClustersRecords")
	change := func(action, kind string, names ...string) map[string][]string {
		return map[string][]string{keyNames: names, keyTypes: {kind}, keyActions: {action}}
	}
	list := []Trial{{Path: "role.zone", Actions: actions("ReadTheZone"), Resource: arn(s.Zone), Allowed: true, What: "reading the zone"}}
	no := func(zone string, context map[string][]string, what string) {
		list = append(list, Trial{Path: "role.foreign", Actions: write, Resource: arn(zone), Context: context, What: what})
	}
	foreign := "masters." + otherCluster + "." + s.Suffix
	for _, c := range s.Clusters {
		domain := c.Name + "." + s.Suffix
		own := change("CREATE", "A", "masters."+domain, "minions."+domain)
		list = append(list,
			Trial{Path: "role.records", Actions: write, Resource: arn(s.Zone), Context: own, Allowed: true, What: "creating the records of " + c.Name},
			Trial{Path: "role.records", Actions: write, Resource: arn(s.Zone), Context: change("DELETE", "TXT", "_hardtack."+domain), Allowed: true, What: "replacing the generation of " + c.Name})
		no(s.Zone, change("CREATE", "A", "masters."+domain, foreign), "writing another's record in one batch with one of "+c.Name)
		no(otherZone, own, "writing the records of "+c.Name+" into another zone")
	}
	no(s.Zone, change("CREATE", "A", foreign), "writing the records of other clusters")
	no(s.Zone, change("DELETE", "NS", s.Suffix), "removing the zone's own records")
	no(s.Zone, nil, "writing without saying what")
	return append(list, Trial{Path: "role.foreign", Actions: []string{"route53:DeleteHostedZone"}, Resource: arn(s.Zone), What: "removing the zone"})
}

// role compares the simulated decisions with the wanted ones; calls of one path that are all right give one line.
func (l *List) role(k Known[[]Decision]) {
	decisions, ok := k.get(l, "role")
	if !ok {
		return
	}
	var paths []string
	good, bad := map[string][]string{}, map[string]bool{}
	for _, d := range decisions {
		if !slices.Contains(paths, d.Path) {
			paths = append(paths, d.Path)
		}
		switch allowed := d.Decision == "allowed"; {
		case allowed == d.Allowed:
			if !slices.Contains(good[d.Path], d.verdict()) {
				good[d.Path] = append(good[d.Path], d.verdict())
			}
			continue
		case allowed:
			l.fail(d.Path, deployAgain+"; see what else is attached to the role", "%s on %s is allowed (%s), and the function has no use for it", d.Action, d.Resource, d.What)
		default:
			l.fail(d.Path, deployAgain+"; see the account's service control policies and the role's boundary", "%s on %s is not allowed (%s), says the simulator: %s%s", d.Action, d.Resource, d.What, d.Decision, d.missing())
		}
		bad[d.Path] = true
	}
	for _, p := range paths {
		if !bad[p] {
			l.ok(p, "%s", strings.Join(good[p], "; "))
		}
	}
}

func (d Decision) verdict() string {
	if d.Allowed {
		return "allowed: " + d.What
	}
	return "refused: " + d.What
}

func (d Decision) missing() string {
	if len(d.Missing) == 0 {
		return ""
	}
	return ", for want of " + strings.Join(d.Missing, ", ")
}
