package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// skew is the tolerance for different clocks of AWS and this machine, and for the rounding of generations.
const skew = time.Minute

func (l *List) logs(f Facts, w Wanted) {
	g, ok := f.Logs.Group.get(l, "log")
	if !ok {
		return
	}
	if id := f.Stack.Value.Resources[shipped.IDLogs].ID; id != "" && id != g.Name {
		l.fail("log.group", deployAgain, "the function logs to %s, and the stack's log group is %s", g.Name, id)
	} else {
		l.ok("log.group", "%s", g.Name)
	}
	want := f.Stack.Value.Parameters[shipped.ParamRetention]
	switch {
	case g.Retention == 0:
		l.warn("log.retention", "aws logs put-retention-policy --retention-in-days "+w.Shipped.LogRetention+" --log-group-name "+g.Name, "lines are kept, and billed, forever")
	case want != "" && want != strconv.Itoa(g.Retention):
		l.warn("log.retention", deployAgain, "%d days, where the stack's parameter says %s", g.Retention, want)
	default:
		l.ok("log.retention", "%d days", g.Retention)
	}
}

func (l *List) alarms(f Facts, w Wanted) {
	alarms, ok := f.Alarms.get(l, "alarms")
	if !ok {
		return
	}
	for _, m := range w.Shipped.Alarms {
		name, found := "alarms."+m.Metric, false
		for _, a := range alarms {
			if a.Metric != m.Metric {
				continue
			}
			found = true
			switch told := ""; {
			case a.State == "ALARM":
				l.fail(name, "see the function's log from that time on", "%s: %s%s", a.Name, meaning(m.ID), because(a.Reason))
			case !a.Enabled:
				l.warn(name, "aws cloudwatch enable-alarm-actions --alarm-names "+a.Name, "%s is %s, and its actions are switched off", a.Name, a.State)
			default:
				if a.Actions == 0 {
					told = ", and tells nobody: give AlarmTopicArn to the stack"
				}
				l.ok(name, "%s is %s%s", a.Name, a.State, told)
			}
		}
		if !found {
			l.warn(name, deployAgain, "no alarm on %s of %s: no alarm tells when %s", m.Metric, m.Value, meaning(m.ID))
		}
	}
}

// groups checks the lifecycle hooks, without which DNS is wrong while machines start or end.
func (l *List) groups(f Facts, w Wanted) {
	groups, ok := f.Groups.get(l, "groups")
	if !ok {
		return
	}
	for _, c := range f.Settings.Value.Clusters {
		for _, g := range groups {
			if slices.Contains(c.Groups, g.Name) {
				l.group(g, c.Name, f.Settings.Value.Hook, w)
			}
		}
	}
}

func (l *List) group(g Group, cluster, hook string, w Wanted) {
	name, roles := "groups."+g.Name, g.Tags[w.TagRole]
	switch {
	case g.Missing:
		l.fail(name, "create it, or leave it out of GroupNames", "there is no such group")
		return
	case g.Tags[w.TagCluster] != cluster:
		l.fail(name+".tags", "tag it "+w.TagCluster+"="+cluster+", propagated at launch", "its tag %s is %q: it has no records", w.TagCluster, g.Tags[w.TagCluster])
	case roles == "":
		l.fail(name+".tags", "tag it with its role, propagated at launch", "it has no tag %s: it has no records", w.TagRole)
	default:
		l.ok(name+".tags", "%s=%s %s=%s", w.TagCluster, cluster, w.TagRole, roles)
	}
	var ends, starts []Hook
	for _, h := range g.Hooks {
		switch {
		case strings.HasSuffix(h.Transition, "_LAUNCHING"):
			starts = append(starts, h)
		case (hook == "" || hook == role.AllHooks) && h.Name != role.EvictionHook || hook == h.Name:
			ends = append(ends, h)
		}
	}
	l.drain(name+".drain", g, ends, hook, w.Drain)
	if slices.Contains(strings.Split(roles, "+"), string(role.Masters)) {
		if len(starts) == 0 {
			l.warn(name+".launch", "give the group a launch hook, as hardtack stack does", "no hook on launch: masters are in DNS before their API server answers")
		} else {
			l.ok(name+".launch", "%s holds a master until its API server answers", starts[0].Name)
		}
	}
}

func (l *List) drain(name string, g Group, hooks []Hook, wanted string, drain time.Duration) {
	const again = "aws autoscaling put-lifecycle-hook --lifecycle-transition autoscaling:EC2_INSTANCE_TERMINATING --default-result CONTINUE --heartbeat-timeout 300 --auto-scaling-group-name "
	all := wanted == "" || wanted == role.AllHooks
	if all {
		wanted = role.DrainHook
	}
	next := again + g.Name + " --lifecycle-hook-name " + wanted
	if len(hooks) == 0 && !all && wanted != role.DrainHook {
		l.fail(name, next, "it has no hook %s on termination, which the function is to complete", wanted)
		return
	}
	if len(hooks) == 0 {
		l.warn(name, next, "no hook on termination: machines end while clients still have their address")
	}
	for _, h := range hooks {
		next := again + g.Name + " --lifecycle-hook-name " + h.Name
		switch {
		case h.Default != "CONTINUE":
			l.fail(name, next, "hook %s ends in %s when nobody completes it: a fault of DNS must not abandon a machine's other hooks", h.Name, h.Default)
		case h.Heartbeat < drain:
			l.fail(name, next, "hook %s holds a machine for %s, and its address may be answered for %s", h.Name, h.Heartbeat, drain)
		default:
			l.ok(name, "%s holds a machine for up to %s", h.Name, h.Heartbeat)
		}
	}
}

// clusters checks the result: the function runs, and the records are right.
func (l *List) clusters(f Facts, w Wanted) {
	runs, known := f.Logs.Runs.get(l, "reconcile")
	if f.Settings.Err != nil {
		return // it has a finding, and the zone of the records is unknown
	}
	for _, c := range f.Settings.Value.Clusters {
		i := slices.IndexFunc(runs, func(r Run) bool { return r.Cluster == c.Name })
		var last *Run
		if i >= 0 {
			last = &runs[i]
		}
		if known {
			l.lastRun(c.Name+".reconcile", last, w)
		}
		records, ok := f.Records[c.Name].get(l, c.Name+".records")
		if ok {
			l.generation(c.Name+".generation", records, last, w.Now)
			l.records(c.Name+".records", records, w)
		}
	}
}

func (l *List) lastRun(name string, r *Run, w Wanted) {
	const next = "see rules.sweep, mapping.state and dead-letters, and the log: sam logs --tail"
	switch {
	case r == nil:
		l.fail(name, next, "the log has none of the last day")
	case r.Err != "":
		l.fail(name, "fix the error; the function retries by itself", "the last one, %s, failed: %s", ago(w.Now, r.At), r.Err)
	case w.Now.Sub(r.At) > w.Shipped.MaxAge:
		l.fail(name, next, "the last one was %s, and there should be one every minute", ago(w.Now, r.At))
	case len(r.Problems) > 0:
		l.warn(name, "fix the problem that it names", "the last one, %s, says: %s", ago(w.Now, r.At), strings.Join(r.Problems, "; "))
	default:
		l.ok(name, "the last one was %s", ago(w.Now, r.At))
	}
}

// generation compares the time of the records with the function's log: records older than the last change in the log
// were written by another program, or are in another zone.
func (l *List) generation(name string, r Records, last *Run, now time.Time) {
	switch {
	case r.Written.IsZero() && r.Sets == 0:
		l.fail(name, "hardtack dns zone prepare gives the cluster its placeholders; then see its reconcile", "the cluster has no records")
	case r.Written.IsZero():
		l.fail(name, "the next reconcile writes it; see why there is none", "there are %d record sets and no readable control record", r.Sets)
	case r.Written.After(now.Add(skew)):
		l.warn(name, "set this machine's clock", "it is from the future, %s", r.Written.UTC().Format(time.RFC3339))
	case last != nil && last.Changed.After(r.Written.Add(skew)):
		l.fail(name, "see who writes to the zone; hardtack dns plan shows what is wrong now",
			"it is from %s, and the function saw one of %s: old records have come back, or this is another zone", r.Written.UTC().Format(time.RFC3339), last.Changed.UTC().Format(time.RFC3339))
	default:
		l.ok(name, "the records last changed %s", ago(now, r.Written))
	}
}

func (l *List) records(name string, r Records, w Wanted) {
	const next = "see them: hardtack dns plan --route53 --fleet aws"
	text := fmt.Sprintf("%d sets are not as the fleet is", r.Differ)
	switch {
	case r.Differ > 0 && w.Now.Sub(r.Written) > w.Shipped.MaxAge:
		l.fail(name, next+"; then see why the function does not reconcile", "%s, and nothing was written since %s", text, ago(w.Now, r.Written))
	case r.Differ > 0:
		l.warn(name, next+"; look again in a minute, the function may be about to write", "%s", text)
	case len(r.Problems) > 0:
		l.warn(name, "fix the problem that it names", "%s", strings.Join(r.Problems, "; "))
	default:
		l.ok(name, "all %d sets match the fleet", r.Sets)
	}
}
