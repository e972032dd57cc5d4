package main

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func etcdDefragCommand() *cli.Command {
	return &cli.Command{
		Name:  "defrag",
		Usage: "let every member give the free space of its database back; after the alarm NOSPACE, compact first and end the alarm",
		Description: "The machine of the leader does it, one member after another, its own last, and only while all are well: each answers nobody meanwhile. " +
			"It does the same by itself once half of a database, and 100 MiB, are free.",
		Flags: etcdFlags(waitFlag(), dryRunFlag()),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			return orderEtcd(c, func(k *operate.Cluster, _ *spec.Complete) (*operate.Asked, error) {
				return k.Defrag(c.Context, c.Bool("dry-run"))
			})
		},
	}
}

func etcdRemoveCommand() *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove a member, before its group leaves the document",
		ArgsUsage: "MEMBER",
		Description: "The machine of the leader does it, while a quorum of the other members is well. The member's machine stops and keeps its data aside; " +
			"it joins again only with another volume. To add members, add them to the document: hardtack stack apply, and they join one after another.",
		Flags: etcdFlags(confirmFlags(waitFlag())...),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return usagef("name one member of etcd (see %s --help)", name(c))
			}
			k, _, err := openEtcd(c)
			if err != nil {
				return err
			}
			member := c.Args().First()
			return change[*operate.Asked]{
				question: fmt.Sprintf("Remove member %s of etcd of cluster %s, whose machine then stops?", member, k.Name),
				run:      func(dry bool) (*operate.Asked, error) { return k.Remove(c.Context, member, dry) },
				due:      func(*operate.Asked) bool { return true },
				text:     askedText,
				answer:   func(a *operate.Asked) error { return answerOrder(c, k, a) },
			}.do(c)
		},
	}
}

func waitFlag() cli.Flag {
	return &cli.BoolFlag{Name: "wait", Usage: "wait for the end, and tell each step"}
}

// orderEtcd gives an order to the leader's machine and, with --wait, tells what becomes of it.
func orderEtcd(c *cli.Context, order func(*operate.Cluster, *spec.Complete) (*operate.Asked, error)) error {
	k, document, err := openEtcd(c)
	if err != nil {
		return err
	}
	asked, err := order(k, document)
	if err != nil {
		return err
	}
	return answerOrder(c, k, asked)
}

// answerOrder says what was ordered and, with --wait, what becomes of it.
func answerOrder(c *cli.Context, k *operate.Cluster, asked *operate.Asked) (err error) {
	out := c.App.Writer
	if !structured(c) {
		if _, err := fmt.Fprint(out, askedText(asked)); err != nil {
			return err
		}
	}
	if c.Bool("wait") && asked.Number > 0 {
		err = k.AwaitOrder(c.Context, asked, func(step string) { fmt.Fprintln(c.App.ErrWriter, step) })
	}
	switch {
	case structured(c):
		return errors.Join(printResult(c, asked), err)
	case err == nil && asked.Answer != nil:
		_, err = fmt.Fprintf(out, "done: %s by the machine of member %s\n", asked.Verb, asked.Answer.Member)
	}
	return err
}

// askedText says what was ordered.
func askedText(a *operate.Asked) string {
	what := string(a.Verb)
	if a.Member != "" {
		what += " " + a.Member
	}
	text := ""
	if a.Warning != "" {
		text = "warning: " + a.Warning + "\n"
	}
	if a.Number == 0 {
		return text + "would order: " + what + "\n"
	}
	text += fmt.Sprintf("ordered: %s, as order %d of epoch %d\n", what, a.Number, a.Epoch)
	if a.Leader == "" {
		return text + "no member reports to lead: the order waits for one (hardtack etcd status)\n"
	}
	return text + fmt.Sprintf("the machine of member %s, which leads, carries it out; hardtack etcd status shows how far it is\n", a.Leader)
}
