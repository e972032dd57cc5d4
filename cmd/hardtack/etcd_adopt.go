package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
)

func etcdAdoptCommand() *cli.Command {
	return &cli.Command{
		Name:  "adopt",
		Usage: "make the records of a running cluster that was started without them, so that its members' machines can be replaced",
		Description: "It computes the cluster's ID from its members' names and its token. Afterwards a machine of a member that has no data" +
			" joins the others, and never starts another cluster. It changes nothing in the cluster, and nothing when it is repeated.",
		Flags: etcdFlags(
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN` that the cluster was started with (default: its name)"},
			&cli.StringFlag{Name: "cluster-id", Usage: "the `ID` that a member of the cluster says, in hexadecimal, or in decimal as etcdctl endpoint status -w json has it; another one is refused"},
			dryRunFlag(),
		),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			o := operate.AdoptOptions{Token: c.String("token"), DryRun: c.Bool("dry-run")}
			var err error
			if o.ClusterID, err = parseClusterID(c.String("cluster-id")); err != nil {
				return usagef("--cluster-id: %w", err)
			}
			k, _, err := openEtcd(c)
			if err != nil {
				return err
			}
			out, err := k.Adopt(c.Context, o)
			if err != nil {
				return err
			}
			if structured(c) {
				return printResult(c, out)
			}
			_, err = fmt.Fprint(c.App.Writer, addressed(c, adoptedText(out, o.DryRun)))
			return err
		},
	}
}

// parseClusterID reads an ID in one of the two forms in which etcdctl prints it. An ID of decimal digits alone that is longer
// than 16 of them is decimal.
func parseClusterID(text string) (etcd.ID, error) {
	if text == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && len(text) > 16 {
		return etcd.ID(n), nil
	}
	var id etcd.ID
	err := id.UnmarshalText([]byte(text))
	return id, err
}

func adoptedText(a *operate.Adopted, dryRun bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.Members)) {
		fmt.Fprintf(&b, "member %s: %s\n", name, a.Members[name])
	}
	switch {
	case a.Made:
		fmt.Fprintf(&b, "adopted cluster %s as epoch 1\nnext: hardtack stack refresh --group GROUP --lose-etcd GROUP --yes, for one member's group; for the next one when hardtack etcd status shows that member as a voter\n", a.ClusterID)
	case dryRun:
		fmt.Fprintf(&b, "would adopt cluster %s as epoch 1\n", a.ClusterID)
	default:
		fmt.Fprintf(&b, "cluster %s is adopted: nothing to do\n", a.ClusterID)
	}
	return b.String()
}
