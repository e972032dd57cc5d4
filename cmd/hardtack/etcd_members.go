package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

func etcdMembersCommand() *cli.Command {
	return &cli.Command{
		Name:        "members",
		Usage:       "list the members: role, member ID, machine, volume, size of the database, alarms",
		Description: "It is a list and no verdict: hardtack etcd status says what is wrong, and exits by it. What it shows is the members' own reports, a minute old at most while they run.",
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
				return printResult(c, r.List())
			}
			return printMembers(c.App.Writer, r.List())
		},
	}
}

func printMembers(out io.Writer, members []operate.Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBER\tROLE\tID\tMACHINE\tVOLUME\tLAG\tDB SIZE\tIN USE\tOF QUOTA\tALARMS")
	for _, m := range members {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", m.Name, dash(m.Role), dash(m.ID), dash(m.Machine), dash(m.Volume), lagText(m),
			mebibytes(m.Size), mebibytes(m.InUse), quotaText(m), dash(strings.Join(m.Alarms, ", ")))
	}
	return w.Flush()
}

func lagText(m operate.Row) string {
	if m.Lag == nil {
		return "-"
	}
	return fmt.Sprint(*m.Lag)
}

func quotaText(m operate.Row) string {
	if m.Quota == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", m.Size*100/m.Quota)
}
