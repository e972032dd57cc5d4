package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

// restoreTime allows for ten minutes in which a quorum waits for the others, after machines that are launched and volumes
// that are downloaded to.
const restoreTime = time.Hour

func etcdRestoreCommand() *cli.Command {
	return &cli.Command{
		Name:  "restore",
		Usage: "begin a new epoch of etcd from a backup, when a majority of the members' data is lost",
		Description: "What was written after the backup is lost: a dry run says how much, and --lose-writes-since accepts it." +
			" The members' machines move their old data away and start from the backup by themselves." +
			" Run it again after a crash, or with another backup: it goes on, or says what is under way.",
		Flags: etcdFlags(append(confirmFlags(),
			backupsFlag(),
			&cli.StringFlag{Name: "from", Usage: "the `NAME` of the backup, or latest (hardtack etcd backup list)"},
			&cli.StringFlag{Name: "lose-writes-since", Usage: "accept that what was written since this `TIME` is lost: 2026-11-22T06:00:00Z"},
			&cli.StringSliceFlag{Name: "off", Usage: "a `MEMBER` whose machine is switched off for certain, though nothing shows it (repeatable)"},
			&cli.BoolFlag{Name: "again", Usage: "begin another epoch: abandon a restore from another backup that is under way, or restore this one once more"},
			&cli.BoolFlag{Name: "wait", Value: true, Usage: "wait until the epoch is formed, and show the progress"},
			timeoutFlag(restoreTime),
		)...),
		Action: etcdRestore,
	}
}

func etcdRestore(c *cli.Context) error {
	o, err := restoreOptions(c)
	if err != nil {
		return err
	}
	k, complete, err := openEtcd(c)
	if err != nil {
		return err
	}
	if err := openBackups(c, k, complete); err != nil {
		return err
	}
	r, err := confirmedRestore(c, k, &o)
	if err != nil {
		return err
	}
	if !o.DryRun && !r.Formed && c.Bool("wait") {
		fmt.Fprint(c.App.ErrWriter, restoredText(r, o))
		ctx, cancel := timeoutContext(c)
		defer cancel()
		p, err := k.Follow(ctx, r.Backup, func(p operate.Progress) { fmt.Fprintln(c.App.ErrWriter, progressText(p)) })
		if err != nil {
			return err
		}
		r.Epoch, r.Formed = p.Epoch, true
	}
	if structured(c) {
		return printResult(c, r)
	}
	_, err = fmt.Fprint(c.App.Writer, addressed(c, restoredText(r, o)))
	return err
}

// confirmedRestore begins the restore, once it is confirmed that what it loses may be lost.
func confirmedRestore(c *cli.Context, k *operate.Cluster, o *operate.RestoreOptions) (*operate.Restored, error) {
	o.DryRun = !c.Bool("yes")
	r, err := k.Restore(c.Context, *o)
	if err != nil || !o.DryRun || c.Bool("dry-run") || o.LoseSince.IsZero() { // what is lost is not accepted yet
		return r, err
	}
	if len(r.Voters) > 0 { // otherwise an earlier run has begun it
		fmt.Fprint(c.App.ErrWriter, restoredText(r, *o))
		if err := proceed(c, "Restore etcd of cluster "+k.Name+", and lose these writes?"); err != nil {
			return nil, err
		}
	}
	o.DryRun = false
	return k.Restore(c.Context, *o)
}

func restoreOptions(c *cli.Context) (operate.RestoreOptions, error) {
	o := operate.RestoreOptions{From: c.String("from"), Off: c.StringSlice("off"), Again: c.Bool("again")}
	if err := noArguments(c); err != nil {
		return o, err
	}
	if o.From == "" {
		return o, usagef("--from: name a backup, or latest (see %s --help)", name(c))
	}
	if text := c.String("lose-writes-since"); text != "" {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return o, usagef("--lose-writes-since %q: not a time such as 2026-11-22T06:00:00Z", text)
		}
		o.LoseSince = at
	}
	slices.Sort(o.Off)
	o.Off = slices.Compact(o.Off)
	return o, nil
}

// restoredText says what a restore has done, or would do.
func restoredText(r *operate.Restored, o operate.RestoreOptions) string {
	var b strings.Builder
	fmt.Fprintf(&b, "backup %s of epoch %d, taken %s at revision %d\n", r.Backup.Name, r.Backup.Epoch, r.Backup.Taken.UTC().Format(time.RFC3339), r.Backup.Revision)
	if len(r.Voters) > 0 { // otherwise an earlier run has said so
		b.WriteString(lossText(r))
	}
	switch {
	case r.Formed:
		fmt.Fprintf(&b, "epoch %d is formed from it: clients reach etcd\nnext: hardtack etcd status; masters start their API servers again by themselves, once\n", r.Epoch)
	case r.Begun:
		fmt.Fprintf(&b, "began epoch %d: the members' machines go on by themselves\n", r.Epoch)
	case o.DryRun && len(r.Voters) > 0:
		fmt.Fprintf(&b, "would begin epoch %d\n", r.Epoch)
		if o.LoseSince.IsZero() {
			fmt.Fprintf(&b, "next: to accept the loss, --lose-writes-since %s\n", r.Loss.Since.UTC().Format(time.RFC3339))
		}
	default:
		fmt.Fprintf(&b, "epoch %d has begun from it before: the members' machines go on by themselves\n", r.Epoch)
	}
	return b.String()
}

func lossText(r *operate.Restored) string {
	var b strings.Builder
	l := r.Loss
	fmt.Fprintf(&b, "lost: every write since %s", l.Since.UTC().Format(time.RFC3339))
	switch {
	case l.Until.IsZero():
		b.WriteString("; no member has reported how many there were\n")
	case r.Backup.Epoch != l.Epoch:
		fmt.Fprintf(&b, "; all of epoch %d, which took writes until %s at least\n", l.Epoch, l.Until.UTC().Format(time.RFC3339))
	default:
		fmt.Fprintf(&b, "; %d revisions at least, up to %d at %s, and what came after that\n", l.AtLeast, l.Revision, l.Until.UTC().Format(time.RFC3339))
	}
	if r.Newer != "" {
		fmt.Fprintf(&b, "warning: %s is newer\n", r.Newer)
	}
	if r.Serving {
		fmt.Fprintf(&b, "warning: a quorum of epoch %d runs, and takes writes until its machines see the new epoch: they are lost too\n", l.Epoch)
	}
	for _, v := range r.Voters {
		fmt.Fprintf(&b, "%s: %s: %s\n", v.Member, v.How, v.Why)
	}
	return b.String()
}

func progressText(p operate.Progress) string {
	state := p.Outcome
	if state == "" {
		state = "is not formed yet"
	} else {
		state = "is " + state
	}
	return fmt.Sprintf("epoch %d %s: of %s, started: %s; run: %s", p.Epoch, state, strings.Join(p.Members, " "), dash(strings.Join(p.Started, " ")), dash(strings.Join(p.Reported, " ")))
}
