package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

func etcdMoveCommand() *cli.Command {
	return &cli.Command{
		Name:      "move",
		Usage:     "take a member out of its zone, and give it a volume in that of another subnet",
		ArgsUsage: "MEMBER",
		Description: "The machine of the leader removes the member, while all others are well and the newest backup is recent. Its volume loses the tag by which machines find it, and is kept. " +
			"It gets another one in the other zone, and the command to apply then is printed: a machine there joins with it. To repeat it goes on where it was interrupted.",
		Flags: etcdFlags(
			&cli.StringFlag{Name: "subnet", Required: true, Usage: "the `SUBNET` of the other zone"},
			&cli.StringFlag{Name: "stack", Usage: "the `NAME` of the cluster's stack (default: hardtack-CLUSTER)"},
			backupsFlag(),
			dryRunFlag(),
		),
		Action: etcdMove,
	}
}

// movedAnswer is what etcd move answers.
type movedAnswer struct {
	*operate.Moved
	DryRun bool `json:"dry_run"`
	// Next is the command to run next; empty if none is.
	Next string `json:"next,omitempty"`
}

func etcdMove(c *cli.Context) error {
	if c.NArg() != 1 {
		return usagef("name one member of etcd (see %s --help)", name(c))
	}
	k, document, err := openEtcd(c)
	if err != nil {
		return err
	}
	if err := openBackups(c, k, document); err != nil {
		return err
	}
	conf, err := loadAWS(c.Context, c)
	if err != nil {
		return err
	}
	member, subnet := c.Args().First(), c.String("subnet")
	zone, err := cloud.New(conf, k.Name).Zone(c.Context, subnet)
	if err != nil {
		return err
	}
	subnets, err := cluster.New(cluster.Config{Document: document, AWS: conf, Stack: c.String("stack")}).MemberSubnets(c.Context, member, subnet)
	if err != nil {
		return err
	}
	e := document.Cluster.Etcd
	m, err := k.Move(c.Context, operate.NewVolume{Member: member, Zone: zone, Size: e.Size, IOPS: e.IOPS, Throughput: e.Throughput, Key: e.Key}, c.Bool("dry-run"), func(step string) { fmt.Fprintln(c.App.ErrWriter, step) })
	if m == nil {
		return err
	}
	out := movedAnswer{Moved: m, DryRun: c.Bool("dry-run")}
	if err == nil {
		out.Next = applyMoved(c, member, subnets)
	}
	if structured(c) {
		return errors.Join(printResult(c, out), err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(c.App.Writer, movedText(out))
	return err
}

// applyMoved is the command that makes the member's new volume. Without a stack the subnets are the template's parameter.
func applyMoved(c *cli.Context, member string, subnets []string) string {
	if len(subnets) == 0 {
		return "set the subnet of member " + member + " in the template's parameter " + template.ParameterMembers + ", leave " + template.ParameterZones + " as it is, and apply it"
	}
	return addressed(c, "hardtack stack apply") + " --etcd-subnets " + strings.Join(subnets, ",")
}

func movedText(m movedAnswer) string {
	switch {
	case m.There:
		return fmt.Sprintf("member %s has volume %s in %s; if its group is not there yet: %s\n", m.Member, m.Volume, m.To, m.Next)
	case m.DryRun && m.Released:
		return fmt.Sprintf("would make a volume in %s: %s is kept\nthen: %s\n", m.To, m.Volume, m.Next)
	case m.DryRun:
		text := ""
		if !m.Removed {
			text = fmt.Sprintf("would remove member %s from etcd\n", m.Member)
		}
		return text + fmt.Sprintf("would take the tag EtcdMember off volume %s, keep it, and make another in %s\nthen: %s\n", m.Volume, m.To, m.Next)
	}
	return fmt.Sprintf("member %s is removed, and volume %s is kept without its tag EtcdMember\nmade volume %s in %s\nnext: %s\n", m.Member, m.Volume, m.Made, m.To, m.Next)
}
