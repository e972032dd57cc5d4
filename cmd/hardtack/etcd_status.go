package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

// unhealthyExit is the exit code of status if etcd is not healthy; 1 means that this could not be found out.
const unhealthyExit = 3

func etcdStatusCommand() *cli.Command {
	return &cli.Command{
		Name:        "status",
		Usage:       "say whether etcd is healthy, with every member, its machine, its volume and who holds it, and what is wrong with the next step",
		Description: fmt.Sprintf("It exits with 0 if etcd is healthy, with %d if it is not, and with 1 if that could not be found out.", unhealthyExit),
		Flags:       etcdFlags(),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			k, _, err := openEtcd(c)
			if err != nil {
				return err
			}
			r, err := k.Status(c.Context)
			if err != nil {
				return err
			}
			if structured(c) {
				err = printResult(c, r)
			} else {
				err = printEtcd(c.App.Writer, r, time.Now())
			}
			if err == nil && !r.Healthy {
				return exitf(unhealthyExit, "etcd is not healthy")
			}
			return err
		},
	}
}

// printEtcd prints a report as a table of members and the findings.
func printEtcd(out io.Writer, r *operate.Report, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "cluster %s, store %s\n%s; %d of %d members are healthy voters, a quorum is %d\n\n", r.Cluster, r.Store, epochText(r), r.Voters, len(r.Members), r.Quorum)
	fmt.Fprintln(w, "MEMBER\tROLE\tID\tROW\tEPOCH\tINDEX\tLAG\tDB SIZE\tIN USE\tVERSION\tREPORTED\tMACHINE\tVOLUME")
	for _, m := range r.Members {
		s := m.Status
		if s == nil {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\tnever\t%s\t%s\n", m.Name, machinesText(m), volumesText(m))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s ago\t%s\t%s\n", m.Name, m.Role, s.MemberID, s.Row, s.Epoch, s.Store.RaftIndex, m.Lag,
			mebibytes(s.Store.Size), mebibytes(s.Store.InUse), dash(s.Store.Version), time.Duration(m.Seconds)*time.Second, machinesText(m), volumesText(m))
	}
	fmt.Fprintf(w, "\nnewest backup: %s\nnewest backup that was taken back from its place: %s\n", backupText(r.Backup, now), backupText(r.Verified, now))
	if err := w.Flush(); err != nil {
		return err
	}
	if err := printWork(out, r.Members); err != nil {
		return err
	}
	return printEtcdFindings(out, r.Findings)
}

// printWork prints what a leader's machine is doing for all members.
func printWork(out io.Writer, members []operate.Member) error {
	for _, m := range members {
		if m.Status == nil || m.Status.Work == nil {
			continue
		}
		w := m.Status.Work
		by := "by itself"
		if w.Order > 0 {
			by = fmt.Sprintf("as order %d", w.Order)
		}
		text := strings.Join(append(append([]string{}, w.Done...), "now: "+w.Doing), "; ")
		if _, err := fmt.Fprintf(out, "%s %s: %s, by the machine of member %s\n", w.Verb, by, text, m.Name); err != nil {
			return err
		}
	}
	return nil
}

func epochText(r *operate.Report) string {
	switch {
	case r.Epoch == 0:
		return "no epoch has begun"
	case r.Outcome == operate.Formed:
		return fmt.Sprintf("epoch %d is formed as cluster %s", r.Epoch, r.ClusterID)
	case r.Outcome == operate.Abandoned:
		return fmt.Sprintf("epoch %d is abandoned", r.Epoch)
	}
	return fmt.Sprintf("epoch %d is not formed yet", r.Epoch)
}

func machinesText(m operate.Member) string {
	var list []string
	for _, i := range m.Machines {
		list = append(list, i.ID+" ("+i.State+")")
	}
	return dash(strings.Join(list, ", "))
}

func volumesText(m operate.Member) string {
	var list []string
	for _, v := range m.Volumes {
		holder := v.State
		if v.Holder != "" {
			holder += " by " + v.Holder
		}
		list = append(list, v.ID+" ("+holder+")")
	}
	return dash(strings.Join(list, ", "))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func backupText(b *etcd.Backup, now time.Time) string {
	if b == nil {
		return "none is known"
	}
	tried := "never restored for a trial"
	if !b.Verified.IsZero() {
		tried = "restored for a trial " + now.Sub(b.Verified).Round(time.Second).String() + " ago"
	}
	return fmt.Sprintf("%s, of revision %d, %s old, %s", b.Object, b.Revision, now.Sub(b.At).Round(time.Second), tried)
}

func printEtcdFindings(out io.Writer, findings []operate.Finding) error {
	var b strings.Builder
	for _, f := range findings {
		if f.Member != "" {
			b.WriteString(f.Member + ": ")
		}
		if f.Warning {
			b.WriteString("warning: ")
		}
		fmt.Fprintf(&b, "%s\n  next: %s\n", f.What, f.Next)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
