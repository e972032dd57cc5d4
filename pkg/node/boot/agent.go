// Package boot runs on a machine at boot: it finds the user data and writes the files that it asks for.
//
// Its rule: only user data gives a machine its roles. When it is done, the role files on the machine are exactly those
// of the machine's user data. In doubt there is none, so that no role unit starts, and the error says why and what to
// do. The one exception is a metadata service that is out of reach, or that has no user data any more, on a machine
// whose hardware identifies it as the one that got the roles.
package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// DefaultDeadline is how long the metadata service may take to come up. cloud-init gives EC2 four
// minutes; a network that is not there after two is not slow but broken, and the console should say so.
const DefaultDeadline = 2 * time.Minute

// Metadata is an instance metadata service. An implementation retries temporary errors until ctx ends. The error of
// UserData matches Options.NoUserData if the instance has no user data.
type Metadata interface {
	UserData(ctx context.Context) ([]byte, error)
	InstanceID(ctx context.Context) (string, error)
	// LaunchIndex returns the instance's number among those that were launched with it, from 0. It is asked for only if the
	// user data needs it.
	LaunchIndex(ctx context.Context) (int, error)
}

// Options are the options of Run.
type Options struct {
	// Root is the root directory of the machine; "" is "/". Everything that is read and written is
	// below it, but for Credentials.
	Root string
	// Credentials is the unit's credential directory, as systemd gives it in $CREDENTIALS_DIRECTORY;
	// empty is none.
	Credentials string
	// Metadata returns the client of the metadata service at an endpoint, "" being the usual one. NoUserData is its
	// error for an instance without user data, or without another value.
	Metadata   func(endpoint string) (Metadata, error)
	NoUserData error
	// Deadline bounds the wait for the metadata service; 0 is DefaultDeadline.
	Deadline time.Duration
	// DryRun reads and plans, and changes nothing.
	DryRun bool
	// Units connects to the service manager; may be nil.
	Units func(context.Context) (Units, error)
	// Log may be nil.
	Log *slog.Logger
}

// Report is the result of Run.
type Report struct {
	// Source is the name of the source that had the user data, and From its place; both are empty if none had any.
	Source string `json:"source"`
	From   string `json:"from"`
	// InstanceID is the machine's id according to the source or else to the hardware; it may be empty.
	InstanceID string   `json:"instance_id"`
	Roles      role.Set `json:"roles"`
	// Files are the files of the user data and the role files that were removed, in order.
	Files []Change `json:"files"`
	// Tried lists the sources that were not used, in the order in which they were tried.
	Tried []Tried `json:"tried"`
	// Findings are the findings about the user data.
	Findings problem.List `json:"findings"`
	// Kept: the user data could not be read again, or the metadata service has none any more, and the machine keeps its roles, since its hardware identifies it as
	// the machine that they were given to.
	Kept   bool `json:"kept"`
	DryRun bool `json:"dry_run"`
}

// Change is the change of one path, which DryRun only plans.
type Change struct {
	Path string `json:"path"`
	// Action is "write", "append", "unchanged" or "remove".
	Action string `json:"action"`
	// Mode is octal, Owner "uid:gid" and Size in bytes; they are empty for a removed file.
	Mode  string `json:"mode,omitempty"`
	Owner string `json:"owner,omitempty"`
	Size  int    `json:"size,omitempty"`
}

// Tried is a source that was not used.
type Tried struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// Run finds the user data and writes its files. The report is valid with an error too, and says what was tried. An
// error means that no role file is left, unless it is about removing one.
func Run(ctx context.Context, o Options) (Report, error) {
	a := newAgent(o)
	report := Report{DryRun: o.DryRun, Roles: role.Set{}, Files: []Change{}, Tried: []Tried{}, Findings: problem.List{}}
	a.before = a.loadState(&report)
	before := a.before
	found, err := a.search(ctx, &report)
	if err != nil {
		if a.keepRoles(&report, before, err) {
			texts, err := a.keptRoleFiles(report.Roles)
			if err == nil {
				err = a.checkLines(&report, texts)
			}
			return report, errors.Join(err, a.notifyKeptUnits(ctx, before))
		}
		return report, a.failClosed(&report, err)
	}
	report.Source, report.From, report.InstanceID = found.source, found.from, found.instanceID
	a.log.InfoContext(ctx, "user data found", "source", found.source, "from", found.from, "bytes", len(found.data), "instance", found.instanceID)
	result, findings := userdata.Parse(found.data, found.launchIndex)
	report.Findings = append(report.Findings, findings...)
	if err := checkResult(result, findings, found); err != nil {
		return report, a.failClosed(&report, err)
	}
	if err := a.checkRoles(result); err != nil {
		return report, a.failClosed(&report, err)
	}
	report.Roles = result.Roles
	if err := a.apply(ctx, &report, result, before, found); err != nil {
		report.Roles = role.Set{}
		return report, a.failClosed(&report, err)
	}
	return report, nil
}

// checkResult returns an error unless the user data can be used.
func checkResult(result userdata.Result, findings problem.List, found foundData) error {
	from := fmt.Sprintf("the user data from %s (%s)", found.source, found.from)
	if err := findings.Err(); err != nil {
		return fmt.Errorf("%s cannot be used, so nothing of it is written:\n%s", from, indent(err.Error()))
	}
	if len(result.Roles) > 0 {
		return nil
	}
	text := from + " has no role file"
	for _, f := range findings {
		text += "\n" + indent(f.String())
	}
	return errors.New(text)
}

// apply plans everything, and then does it.
func (a *agent) apply(ctx context.Context, report *Report, result userdata.Result, before state, found foundData) error {
	others, err := a.roleFiles(result.Roles)
	if err != nil {
		return err
	}
	a.appended = a.loadAppended(report, found.instanceID)
	steps, err := a.plan(result.Files)
	if err != nil {
		return err
	}
	for _, r := range others {
		a.log.Warn("removing a role file that the user data does not ask for", "path", r.File(), "given to", before.InstanceID, "this is", found.instanceID)
		report.Files = append(report.Files, Change{Path: r.File(), Action: actionRemove})
	}
	old, left := stale(before, result.Files)
	for _, name := range left {
		report.left(name, "it was there before the user data wrote to it")
	}
	changed := slices.ContainsFunc(old, isUnitFile)
	for _, name := range old {
		a.log.Info("removing a file that the user data has no more", "path", name)
		report.Files = append(report.Files, Change{Path: name, Action: actionRemove})
	}
	var paths []string
	for _, s := range steps {
		report.Files = append(report.Files, s.change())
		paths = append(paths, s.path)
		changed = changed || isUnitFile(s.path) && s.action != actionUnchanged
	}
	if a.dryRun {
		return a.checkLines(report, roleTexts(steps))
	}
	appends, err := a.appended.step(a)
	if err != nil {
		return err
	}
	record, err := a.stateStep(state{InstanceID: found.instanceID, LaunchIndex: found.launchIndex, Machine: a.machine.id, Source: found.source,
		Digest: digest(found.data), Roles: result.Roles, Files: paths, Created: createdFiles(before, steps)})
	if err != nil {
		return err
	}
	records := []step{record}
	if found.source == sourceVolume {
		kept, err := a.step(userdata.File{Path: volumeCopy, Content: found.data, Mode: 0o600})
		if err != nil {
			return err
		}
		records = []step{kept, record} // a state of this source has its copy
	}
	// In this order no role is there that is not asked for, and none before its other files.
	if err := errors.Join(a.removeRoles(others), a.removeFiles(report, old)); err != nil {
		return err
	}
	if err := a.write(appends); err != nil {
		if !a.sealed {
			return err
		}
		// /etc is new at each boot: a reader that is started again in this one may append to it twice.
		report.Findings.Add(problem.Problem{File: appendedPath, Severity: problem.Warning, Text: "is not written: " + err.Error()})
	}
	if err := a.write(slices.Concat(steps, records)); err != nil {
		return err
	}
	if err := a.checkLines(report, roleTexts(steps)); err != nil {
		return err
	}
	return a.notifyUnits(ctx, changed, installed(result.Files))
}

// keepRoles decides whether the machine keeps its roles although its user data cannot be read. It does if the metadata
// service had given them and the hardware (not the disk, which can be a copy of another machine's) identifies the
// machine as the same one. Its units then recover without a hand. A control plane on EC2 does so only once the service
// answers again, since its credentials for the store, and so its certificates, come from there; what needs neither starts
// at once, such as a store in a directory, containerd, and the kubelet for its static pods. Any other role file is removed in any
// case.
func (a *agent) keepRoles(report *Report, before state, cause error) bool {
	var broken *unreadableError
	if !errors.As(cause, &broken) || broken.source != sourceIMDS || before.Source != sourceIMDS {
		return false
	}
	if a.machine.id == "" || !a.isMachine(before) {
		return false
	}
	have, err := a.roleFiles(nil)
	if err != nil || len(role.NewSet(append(have, before.Roles...)...)) != len(have) {
		return false // one of them is gone
	}
	extra, err := a.roleFiles(before.Roles)
	if err != nil || !a.dryRun && a.removeRoles(extra) != nil {
		return false
	}
	report.Kept, report.Source, report.InstanceID, report.Roles = true, before.Source, before.InstanceID, before.Roles
	a.log.Warn("the metadata service does not answer with the user data: keeping the roles that it gave to this machine before",
		"roles", before.Roles.String(), "machine", a.machine.id, "error", cause)
	return true
}

// failClosed removes every role file, so that no role unit starts, and returns the error for the operator.
func (a *agent) failClosed(report *Report, cause error) error {
	var text strings.Builder
	for _, t := range report.Tried {
		fmt.Fprintf(&text, "\n  %s: %s", t.Source, t.Reason)
	}
	fmt.Fprintf(&text, "\nnext: %s", nextStep(cause))
	err := reason.With(ReasonOf(cause), fmt.Errorf("this machine gets no role, and no role unit starts: %w%s", cause, text.String()))
	have, listing := a.roleFiles(nil)
	if listing != nil {
		return errors.Join(err, listing)
	}
	for _, r := range have {
		report.Files = append(report.Files, Change{Path: r.File(), Action: actionRemove})
	}
	if a.dryRun {
		return err
	}
	return errors.Join(err, a.removeRoles(have))
}

// nextStep is the advice at the end of the error's text: that of the reason, which programs read beside it; and for user data,
// where people may have written it by hand, what it must have.
func nextStep(cause error) string {
	var has *reason.Error
	if errors.As(cause, &has) && has.Next != "" {
		return has.Next
	}
	why := ReasonOf(cause)
	if why != reason.UserData {
		return why.Next()
	}
	var files []string
	for _, r := range role.All() {
		files = append(files, r.File())
	}
	return fmt.Sprintf("give the machine user data that begins with #cloud-config and has one or more of %s under write_files: hardtack userdata -f CLUSTER.yaml --group GROUP prints such", strings.Join(files, ", "))
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
