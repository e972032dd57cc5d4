package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
)

// Judge runs all checks, from the stack to the records.
func Judge(f Facts, w Wanted) List {
	var l List
	l.stack(f.Stack, w)
	l.function(f, w)
	l.settings(f)
	l.mappings(f, w)
	l.queue(f, w)
	l.policy(f)
	l.dead(f, w)
	l.rules(f, w)
	l.role(f.Role)
	l.logs(f, w)
	l.alarms(f, w)
	l.groups(f, w)
	l.clusters(f, w)
	return l
}

func (l *List) stack(k Known[Stack], w Wanted) {
	s, ok := k.get(l, "stack")
	switch {
	case !ok:
		(*l)[len(*l)-1].Next += "; or name the function with --function"
		return
	case s.Name == "":
		l.ok("stack", "the function belongs to no stack: the resources that it refers to are checked")
		return
	case strings.HasSuffix(s.Status, "_IN_PROGRESS"):
		l.warn("stack", "wait until it is done, and look again", "%s is %s", s.Name, s.Status)
	case s.Status == "UPDATE_ROLLBACK_COMPLETE":
		l.warn("stack", "see why: aws cloudformation describe-stack-events --stack-name "+s.Name, "the last update of %s was rolled back%s", s.Name, because(s.Reason))
	case s.Status != "CREATE_COMPLETE" && s.Status != "UPDATE_COMPLETE" && s.Status != "IMPORT_COMPLETE":
		l.fail("stack", "see the stack's events, and deploy it again", "%s is %s%s", s.Name, s.Status, because(s.Reason))
	default:
		l.ok("stack", "%s is %s", s.Name, s.Status)
	}
	for _, id := range slices.Sorted(maps.Keys(w.Shipped.Types)) {
		got, there := s.Resources[id]
		name, want := "stack."+id, w.Shipped.Types[id]
		switch {
		case !there:
			l.fail(name, deployAgain+", with this version's template", "the stack has none, so it was deployed from another template")
		case got.Type != want:
			l.fail(name, deployAgain+", with this version's template", "it is an %s, not an %s", got.Type, want)
		case strings.HasSuffix(got.Status, "_FAILED") || got.Status == "DELETE_COMPLETE":
			l.fail(name, "see the stack's events, and deploy it again", "%s is %s%s", got.ID, got.Status, because(got.Reason))
		case got.Drift == "DELETED":
			l.fail(name, deployAgain, "%s was deleted outside CloudFormation", got.ID)
		case got.Drift == "MODIFIED":
			l.warn(name, "see what: aws cloudformation describe-stack-resource-drifts --stack-name "+s.Name, "%s was changed outside CloudFormation", got.ID)
		}
	}
}

// because returns ": reason", or "" for an empty reason.
func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// same checks that a value equals the template's.
func same[T comparable](l *List, name string, got, want T) {
	if got != want {
		l.warn(name, deployAgain, "%v, where the template has %v", got, want)
		return
	}
	l.ok(name, "%v", got)
}

func (l *List) function(f Facts, w Wanted) {
	fn, ok := f.Function.get(l, "function")
	if !ok {
		return
	}
	switch s := fn.Status; {
	case s.State == "Inactive":
		l.ok("function.state", "Inactive: it was not needed for long, and starts with the next message")
	case s.State != "Active":
		l.fail("function.state", "see the reason; "+deployAgain, "%s is %s%s", fn.Name, s.State, because(s.StateReason))
	default:
		l.ok("function.state", "%s is Active", fn.Name)
	}
	switch s := fn.Status; s.Update {
	case "Successful":
		l.ok("function.update", "the last update was successful")
	case "InProgress":
		l.warn("function.update", "wait a minute, and look again", "an update is in progress")
	default:
		l.fail("function.update", deployAgain, "the last update is %s%s", s.Update, because(s.UpdateReason))
	}
	want := w.Shipped.Function
	if fn.Runtime != want.Runtime {
		l.fail("function.runtime", deployAgain, "%q, where the program needs %s", fn.Runtime, want.Runtime)
	} else {
		l.ok("function.runtime", "%s", fn.Runtime)
	}
	same(l, "function.handler", fn.Handler, want.Handler)
	l.code(f, fn, w.Zip)
	same(l, "function.memory", fmt.Sprintf("%d MB", fn.Memory), fmt.Sprintf("%d MB", want.Memory))
	same(l, "function.timeout", fn.Timeout, want.Timeout)
	switch r, concurrency := fn.Reserved, w.Shipped.Mapping.Concurrency; {
	case r == nil:
		l.ok("function.concurrency", "none is reserved, as in the template")
	case *r == 0:
		l.fail("function.concurrency", "aws lambda delete-function-concurrency --function-name "+fn.Name, "0 is reserved: the function never runs")
	case *r < concurrency:
		l.warn("function.concurrency", "aws lambda delete-function-concurrency --function-name "+fn.Name, "%d is reserved, and the queue may ask for %d at once", *r, concurrency)
	default:
		l.warn("function.concurrency", deployAgain, "%d is reserved, where the template reserves none", *r)
	}
}

func (l *List) code(f Facts, fn Function, zip *Zip) {
	want := f.Stack.Value.Parameters[shipped.ParamArchitecture]
	if zip != nil {
		want = zip.Architecture
	}
	switch {
	case want == "":
		l.ok("function.architecture", "%s (nothing to compare with: give --zip)", fn.Architecture)
	case fn.Architecture != want:
		l.fail("function.architecture", deployAgain, "%s, where it should be %s: the program cannot start", fn.Architecture, want)
	default:
		l.ok("function.architecture", "%s", fn.Architecture)
	}
	switch {
	case zip == nil:
		l.ok("function.code", "sha256 %s (nothing to compare with: give --zip)", fn.CodeSHA256)
	case zip.SHA256 != fn.CodeSHA256:
		l.fail("function.code", "aws lambda update-function-code --function-name "+fn.Name+" --zip-file fileb://"+zip.File+"; a zip that sam has made never has the digest of another",
			"sha256 %s is deployed, %s has %s", fn.CodeSHA256, zip.File, zip.SHA256)
	default:
		l.ok("function.code", "sha256 %s, as %s", fn.CodeSHA256, zip.File)
	}
}

// settings checks the function's environment: the required variables, and those that the stack's parameters set.
func (l *List) settings(f Facts) {
	const name = "function.environment"
	if err := f.Settings.Err; err != nil && f.Function.Err == nil && !errors.Is(err, ErrUnread) {
		for line := range strings.Lines(err.Error()) {
			l.fail(name, deployAgain, "%s", strings.TrimSpace(line))
		}
		return
	}
	s, ok := f.Settings.get(l, name)
	if !ok {
		return
	}
	before := len(*l)
	if p := f.Stack.Value.Parameters; f.Stack.Err == nil && len(p) > 0 {
		groups := strings.Split(strings.ReplaceAll(p[shipped.ParamGroups], " ", ""), ",")
		for _, c := range [][3]string{
			{"the zone", s.Zone, p[shipped.ParamZone]}, {"the zone's name", s.Suffix, p[shipped.ParamSuffix]}, {"the hook", s.Hook, p[shipped.ParamHook]},
			{"the clusters", fmt.Sprint(s.Clusters), fmt.Sprint([]Cluster{{p[shipped.ParamCluster], groups}})},
		} {
			if c[1] != c[2] {
				l.fail(name, deployAgain, "%s: it has %q, and the stack's parameters %q", c[0], c[1], c[2])
			}
		}
	}
	if id := f.Stack.Value.Resources[shipped.IDQueue].ID; id != "" && s.Queue != id {
		l.fail(name, deployAgain, "reminders go to %q, and the stack's queue is %s", s.Queue, id)
	}
	if s.Queue == "" {
		l.warn(name, "set HARDTACK_QUEUE_URL, or "+deployAgain, "no queue for reminders: machines wait up to a minute longer to end")
	}
	if len(*l) == before {
		l.ok(name, "complete: zone %s (%s), %s", s.Zone, s.Suffix, s.describe())
	}
}

func (s Settings) describe() string {
	var parts []string
	for _, c := range s.Clusters {
		parts = append(parts, c.Name+" with "+strings.Join(c.Groups, ", "))
	}
	return strings.Join(parts, "; ")
}

// mappings checks the event source mapping of the queue.
func (l *List) mappings(f Facts, w Wanted) {
	all, ok := f.Mappings.get(l, "mapping")
	if !ok {
		return
	}
	i := slices.IndexFunc(all, func(m Mapping) bool { return f.Queue.Value.ARN == "" || m.Source == f.Queue.Value.ARN })
	if i < 0 {
		l.fail("mapping", deployAgain, "nothing reads %s for the function (%d other event sources)", f.Queue.Value.ARN, len(all))
		return
	}
	m := all[i]
	switch m.State {
	case "Enabled":
		l.ok("mapping.state", "Enabled")
	case "Enabling", "Creating", "Updating":
		l.warn("mapping.state", "wait a minute, and look again", "%s", m.State)
	default:
		l.fail("mapping.state", "aws lambda update-event-source-mapping --uuid "+m.ID+" --enabled", "%s, so nothing reads the queue%s", m.State, because(m.Reason))
	}
	if strings.HasPrefix(m.LastResult, "PROBLEM") {
		l.fail("mapping.result", "see the function's log and the role's checks", "%s", m.LastResult)
	} else {
		l.ok("mapping.result", "%s", orElse(m.LastResult, "no result yet"))
	}
	want := w.Shipped.Mapping
	same(l, "mapping.batch", m.Batch, want.Batch)
	same(l, "mapping.window", m.Window, want.Window)
	same(l, "mapping.concurrency", m.Concurrency, want.Concurrency)
	if !m.ReportsFailures {
		l.fail("mapping.failures", deployAgain, "ReportBatchItemFailures is not set: the messages of a reconcile that failed are lost")
	} else {
		l.ok("mapping.failures", "ReportBatchItemFailures")
	}
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// ago returns the time from t to now in words.
func ago(now, t time.Time) string {
	d := max(0, now.Sub(t)) // clocks differ by a little
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}
