package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

func etcdReplaceCommand() *cli.Command {
	return &cli.Command{
		Name:        "replace",
		Usage:       "make a new volume for a member whose own is lost for good; nothing is deleted or detached",
		ArgsUsage:   "MEMBER",
		Description: "While a volume with the member's data is there, it is an error that says who has it.",
		Flags: etcdFlags(
			&cli.StringFlag{Name: "zone", Usage: "the availability `ZONE` of the member's group, if it has no machine (default: its machine's)"},
			dryRunFlag(),
		),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("name one member of etcd (see %s --help)", name(c))
			}
			k, document, err := openEtcd(c)
			if err != nil {
				return err
			}
			e := document.Cluster.Etcd
			out, err := k.Replace(c.Context, operate.NewVolume{Member: c.Args().First(), Zone: c.String("zone"), Size: e.Size, IOPS: e.IOPS, Throughput: e.Throughput, Key: e.Key}, c.Bool("dry-run"))
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, out)
			}
			_, err = fmt.Fprintf(c.App.Writer, "member %s: %s\nnext: %s\n", out.Member, replacedText(out), addressed(c, out.Next))
			return err
		},
	}
}

func replacedText(r *operate.Replaced) string {
	switch {
	case r.Made:
		return fmt.Sprintf("made volume %s of %d GiB in %s", r.Volume, r.Size, r.Zone)
	case r.Volume != "":
		return fmt.Sprintf("volume %s in %s is there and has never had data: nothing to make", r.Volume, r.Zone)
	}
	return fmt.Sprintf("would make a volume of %d GiB in %s", r.Size, r.Zone)
}
