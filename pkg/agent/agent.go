// Package agent is what Hardtack runs on a machine at boot: it finds the user data, and makes the
// files of it true.
//
// Its rule: user data alone gives a machine its roles. When the reader is done, the role files that
// exist are those that the user data of this machine asks for; on any doubt there is none, so that no
// role unit starts, and the error says why and what to do. The one doubt that is not fatal is a
// metadata service out of reach on a machine whose hardware says that it is the one that was set up.
package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/userdata"
)

// DefaultDeadline is how long the metadata service may take to come up. cloud-init gives EC2 four
// minutes; a network that is not there after two is not slow but broken, and the console should say so.
const DefaultDeadline = 2 * time.Minute

// Metadata is an instance metadata service. An implementation waits out passing faults until ctx ends.
// UserData returns an error that ErrNoUserData matches where the instance has none.
type Metadata interface {
	UserData(ctx context.Context) ([]byte, error)
	InstanceID(ctx context.Context) (string, error)
}

// Options say where to look and what to do.
type Options struct {
	// Root is the root directory of the machine; "" is "/". Everything that is read and written is
	// below it, but for Credentials.
	Root string
	// Credentials is the unit's credential directory, as systemd gives it in $CREDENTIALS_DIRECTORY;
	// empty is none.
	Credentials string
	// Metadata makes the client of the metadata service at an endpoint, "" being the usual one. NoUserData
	// is the error by which it says that the instance has none.
	Metadata   func(endpoint string) (Metadata, error)
	NoUserData error
	// Deadline bounds the wait for the metadata service; 0 is DefaultDeadline.
	Deadline time.Duration
	// DryRun reads and plans, and changes nothing.
	DryRun bool
	// Units connects to the service manager; nil is none.
	Units func(context.Context) (Units, error)
	// Log gets the story; nil discards it.
	Log *slog.Logger
}

// Report is what a run found and did.
type Report struct {
	// Source is the name of the source that had the user data, and From the place; both are empty
	// where none had.
	Source string `json:"source"`
	From   string `json:"from"`
	// InstanceID is what the source calls the machine, or what its hardware says, or empty.
	InstanceID string   `json:"instanceId"`
	Roles      role.Set `json:"roles"`
	// Files are the files of the user data and the role files that were removed, in order.
	Files []Change `json:"files"`
	// Tried are the sources that were not used, in the order in which they were asked.
	Tried []Tried `json:"tried"`
	// Findings are the findings about the user data.
	Findings problem.List `json:"findings"`
	// Kept says that the user data could not be read again, and that the machine keeps the roles that
	// it has since its hardware says that it is the one that they were given to.
	Kept   bool `json:"kept"`
	DryRun bool `json:"dryRun"`
}

// Change is what was done to one path, or with DryRun would be.
type Change struct {
	Path string `json:"path"`
	// Action is "write", "append", "unchanged" or "remove".
	Action string `json:"action"`
	// Mode is octal, Owner "uid:gid" and Size in bytes; they are empty for what is removed.
	Mode  string `json:"mode,omitempty"`
	Owner string `json:"owner,omitempty"`
	Size  int    `json:"size,omitempty"`
}

// Tried is a source that was not used.
type Tried struct {
	Source string `json:"source"`
	Reason string `json:"reason"`
}

// Run finds the user data and makes it true. The report is valid with an error too, and says what was
// tried. An error means that no role file is left, unless it is about removing one.
func Run(ctx context.Context, o Options) (Report, error) {
	a := newAgent(o)
	report := Report{DryRun: o.DryRun, Roles: role.Set{}, Files: []Change{}, Tried: []Tried{}, Findings: problem.List{}}
	before := a.loadState(&report)
	found, err := a.search(ctx, &report)
	if err != nil {
		if a.keep(&report, before, err) {
			return report, a.tellKept(ctx, before)
		}
		return report, a.closed(&report, err)
	}
	report.Source, report.From, report.InstanceID = found.source, found.from, found.instanceID
	a.log.InfoContext(ctx, "user data found", "source", found.source, "from", found.from, "bytes", len(found.data), "instance", found.instanceID)
	result, findings := userdata.Parse(found.data)
	report.Findings = append(report.Findings, findings...)
	if err := verdict(result, findings, found); err != nil {
		return report, a.closed(&report, err)
	}
	report.Roles = result.Roles
	if err := a.apply(ctx, &report, result, before, found); err != nil {
		report.Roles = role.Set{}
		return report, a.closed(&report, err)
	}
	return report, nil
}

// verdict says whether the user data can be acted on.
func verdict(result userdata.Result, findings problem.List, found found) error {
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
func (a *agent) apply(ctx context.Context, report *Report, result userdata.Result, before state, found found) error {
	stale, err := a.roleFiles(result.Roles)
	if err != nil {
		return err
	}
	steps, err := a.plan(result.Files)
	if err != nil {
		return err
	}
	for _, r := range stale {
		a.log.Warn("removing a role file that the user data does not ask for", "path", r.File(), "given to", before.InstanceID, "this is", found.instanceID)
		report.Files = append(report.Files, Change{Path: r.File(), Action: actionRemove})
	}
	old := staleUnits(before, result.Files)
	changed := len(old) > 0
	for _, name := range old {
		report.Files = append(report.Files, Change{Path: name, Action: actionRemove})
	}
	var paths []string
	for _, s := range steps {
		report.Files = append(report.Files, s.change())
		paths = append(paths, s.path)
		changed = changed || isUnitFile(s.path) && s.action != actionUnchanged
	}
	if a.dryRun {
		return nil
	}
	sum := sha256.Sum256(found.data)
	record, err := a.stateStep(state{InstanceID: found.instanceID, Machine: a.machine.id, Source: found.source,
		Digest: hex.EncodeToString(sum[:]), Roles: result.Roles, Files: paths})
	if err != nil {
		return err
	}
	// In this order no role is there that is not asked for, and none before its other files.
	if err := errors.Join(a.removeRoles(stale), a.removeUnits(old)); err != nil {
		return err
	}
	if err := a.write(append(steps, record)); err != nil {
		return err
	}
	return a.tell(ctx, changed, installed(result.Files))
}

// keep decides whether the machine keeps the roles that it has although its user data cannot be read.
// It does where the metadata service had given them and the hardware (not the disk, which can be a
// copy of another machine's) says that this is the same machine: a reboot during an outage must not
// stop a control plane. A role file that was not given then goes in any case.
func (a *agent) keep(report *Report, before state, cause error) bool {
	var broken *brokenError
	if !errors.As(cause, &broken) || broken.source != sourceIMDS || before.Source != sourceIMDS {
		return false
	}
	if a.machine.id == "" || a.machine.id != before.Machine || len(before.Roles) == 0 {
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
	a.log.Warn("the metadata service is out of reach: keeping the roles that it gave to this machine before",
		"roles", before.Roles.String(), "machine", a.machine.id, "error", cause)
	return true
}

// closed takes away every role file, so that no role unit starts, and makes the error that people read.
func (a *agent) closed(report *Report, cause error) error {
	var text strings.Builder
	for _, t := range report.Tried {
		fmt.Fprintf(&text, "\n  %s: %s", t.Source, t.Reason)
	}
	next := reason.Disk.Next()
	if ReasonOf(cause) != reason.Disk {
		var files []string
		for _, r := range role.All() {
			files = append(files, r.File())
		}
		next = fmt.Sprintf("give the machine user data that begins with #cloud-config and has one or more of %s under write_files", strings.Join(files, ", "))
	}
	fmt.Fprintf(&text, "\nnext: %s", next)
	err := fmt.Errorf("this machine gets no role, and no role unit starts: %w%s", cause, text.String())
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

func indent(text string) string {
	return "  " + strings.ReplaceAll(text, "\n", "\n  ")
}
