package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

// onStack returns the action of a command for a cluster's stack. It adds hints to the errors.
func onStack(do func(c *cli.Context, k *cluster.Cluster) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		k, err := openCluster(c)
		if err != nil {
			return err
		}
		return withStackHint(c, do(c, k))
	}
}

func stackDiffCommand() *cli.Command {
	return &cli.Command{
		Name:  "diff",
		Usage: "show what apply would change, and which machines a refresh would then replace, without changing anything",
		Flags: deployFlags(
			&cli.BoolFlag{Name: "exit-code", Usage: fmt.Sprintf("exit with status %d if anything would change", changesExit)},
		),
		Action: onStack(stackDiff),
	}
}

func stackDiff(c *cli.Context, k *cluster.Cluster) error {
	deploy, err := deployOptions(c)
	if err != nil {
		return err
	}
	d, err := k.Diff(c.Context, deploy)
	if err != nil {
		return err
	}
	text := changesText(d.Changes, d.Refresh)
	if text == "" {
		text = "no changes\n"
	}
	text += unreadText(d.Unread)
	if err := stackAnswer(c, d, text); err != nil {
		return err
	}
	if c.Bool("exit-code") && !d.Empty() {
		return exitf(changesExit, "the stack or its machines would change")
	}
	return nil
}

func stackApplyCommand() *cli.Command {
	return &cli.Command{
		Name:  "apply",
		Usage: "create or update the stack from the document; running machines stay as they are until refresh",
		Flags: append(deployFlags(
			&cli.StringSliceFlag{Name: "allow-replacement", Usage: "allow a `RESOURCE`, given by its logical name, to be replaced or removed with its content: a zone, a volume or a group; may be repeated"},
			skewFlag(),
			&cli.BoolFlag{Name: "protect", Usage: "set the stack's termination protection; --protect=false removes it"},
		), confirmFlags()...),
		Action: onStack(stackApply),
	}
}

func stackApply(c *cli.Context, k *cluster.Cluster) error {
	deploy, err := deployOptions(c)
	if err != nil {
		return err
	}
	o := cluster.ApplyOptions{Deployment: deploy, AllowReplacement: c.StringSlice("allow-replacement"), AllowSkew: c.Bool("allow-skew"), EndMachines: c.Bool("yes") || atTerminal(), DryRun: c.Bool("dry-run")}
	if c.IsSet("protect") {
		o.Protect = new(c.Bool("protect"))
	}
	question := "Change " + stackName(c, k) + "?"
	if deploy.Parameters[template.ParameterMachines] == template.MachinesNo {
		question = "End every machine of " + stackName(c, k) + "?"
	}
	o.Confirm = func(context.Context, *cluster.Applied) error { return proceed(c, question) }
	if !structured(c) && !o.DryRun {
		o.OnDiff = func(d *cluster.Diff) { fmt.Fprint(c.App.ErrWriter, changesText(d.Changes, nil)) }
	}
	a, err := k.Apply(c.Context, o)
	if err != nil {
		return err
	}
	next := []string{}
	text := "stack " + a.Stack + ": would be unchanged\n" + changesText(a.Changes, a.Refresh) + unreadText(a.Unread)
	if a.Changed {
		text = "stack " + a.Stack + ": would be changed\n" + changesText(a.Changes, a.Refresh) + unreadText(a.Unread) + unmovedText(a.Unmoved)
	}
	if !a.DryRun {
		text, next = appliedText(a), nextAfterApply(c, k, a)
	}
	return stackAnswer(c, struct {
		*cluster.Applied
		Next []string `json:"next"`
	}{a, next}, text, next...)
}

// nextAfterApply returns the commands to run next. The function has to be deployed again if the groups change, since
// it reads only those in its parameters.
func nextAfterApply(c *cli.Context, k *cluster.Cluster, a *cluster.Applied) []string {
	out := []string{}
	if a.Empty || a.Regrouped || a.FunctionBehind {
		out = append(out, fmt.Sprintf("sam deploy --stack-name %s --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides %s",
			cluster.FunctionStack(k.Name()), strings.Join(k.FunctionParameters(a.ZoneID, a.Groups, a.FunctionBehind), " ")))
	}
	switch {
	case a.Empty:
		out = append(out, addressed(c, "hardtack stack apply")+" --machines yes")
	case len(a.Refresh) > 0:
		out = append(out, addressed(c, "hardtack stack refresh"))
	}
	return out
}

func stackRefreshCommand() *cli.Command {
	return &cli.Command{
		Name:  "refresh",
		Usage: "replace machines whose image or configuration is not the stack's: etcd and masters one by one, minions by AutoScaling; run it again to continue",
		Flags: refreshFlags(),
		Action: onStack(func(c *cli.Context, k *cluster.Cluster) error {
			o, err := refreshOptions(c)
			if err != nil {
				return err
			}
			return rollOut(c, "Replace these machines of "+stackName(c, k)+"?", func(dry bool) (*cluster.Refreshed, error) {
				o.DryRun = dry
				return k.Refresh(c.Context, o)
			})
		}),
	}
}

func stackRollbackCommand() *cli.Command {
	return &cli.Command{
		Name:  "rollback",
		Usage: "replace machines by ones of the launch template version before the stack's, with its image and configuration",
		Flags: refreshFlags(
			&cli.StringSliceFlag{Name: "to", Usage: "the version of a group's launch template to return to, `GROUP=VERSION`; may be repeated"},
		),
		Action: onStack(func(c *cli.Context, k *cluster.Cluster) error {
			to, err := versionsOf(c)
			if err != nil {
				return err
			}
			o, err := refreshOptions(c)
			if err != nil {
				return err
			}
			return rollOut(c, "Roll these machines of "+stackName(c, k)+" back?", func(dry bool) (*cluster.Refreshed, error) {
				o.DryRun = dry
				return k.Rollback(c.Context, cluster.RollbackOptions{RefreshOptions: o, To: to})
			})
		}),
	}
}

// stackName names the stack of a command in a question.
func stackName(c *cli.Context, k *cluster.Cluster) string {
	if c.IsSet("terraform") {
		return fmt.Sprintf("what Terraform has made in %s of cluster %s (%s)", k.Region(), k.Name(), c.String("file"))
	}
	return fmt.Sprintf("stack %s in %s, of cluster %s (%s)", k.Stack(), k.Region(), k.Name(), c.String("file"))
}

// rollOut replaces machines, once that is confirmed.
func rollOut(c *cli.Context, question string, run func(dry bool) (*cluster.Refreshed, error)) error {
	return change[*cluster.Refreshed]{
		question: question, run: run, text: refreshedText,
		due:    func(r *cluster.Refreshed) bool { return len(r.Refresh)+len(r.TakenBack) > 0 },
		answer: func(r *cluster.Refreshed) error { return answerRefreshed(c, r) },
	}.do(c)
}

func answerRefreshed(c *cli.Context, r *cluster.Refreshed) error {
	next := []string{}
	if a := r.Ahead; a != nil {
		next = append(next, fmt.Sprintf("hardtack image rollback%s --channel %s    # it names %s, which the next apply takes; %s runs %s", given(c, "region", "endpoint-url"), a.Channel, a.Image, a.Group, a.Runs))
	}
	return stackAnswer(c, struct {
		*cluster.Refreshed
		Next []string `json:"next"`
	}{r, next}, refreshedText(r), next...)
}

func stackStatusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "print the state of the stack and of every machine of its groups, with its version of Kubernetes, its launch template version and whether DNS has it",
		Flags: rollFlags(),
		Action: onStack(func(c *cli.Context, k *cluster.Cluster) error {
			s, err := k.Status(c.Context)
			if err != nil {
				return err
			}
			return stackAnswer(c, s, statusText(s))
		}),
	}
}

func stackDeleteCommand() *cli.Command {
	return &cli.Command{
		Name:   "delete",
		Usage:  "delete the cluster: its machines, then its records, then the stack, or else leave the rest to terraform destroy; list what is kept",
		Flags:  rollFlags(confirmFlags()...),
		Action: onStack(stackDelete),
	}
}

func stackDelete(c *cli.Context, k *cluster.Cluster) error {
	return change[*cluster.Deleted]{
		question: "Delete " + stackName(c, k) + "?",
		run: func(dry bool) (*cluster.Deleted, error) {
			return k.Delete(c.Context, cluster.DeleteOptions{DryRun: dry})
		},
		due:    func(d *cluster.Deleted) bool { return d.Found && !d.Done },
		text:   func(d *cluster.Deleted) string { return deletedText(d, leftovers(d)) },
		answer: func(d *cluster.Deleted) error { return answerDeleted(c, d) },
	}.do(c)
}

func leftovers(d *cluster.Deleted) []leftover {
	left := []leftover{}
	for _, l := range d.Stays {
		left = append(left, leftoverOf(l))
	}
	return left
}

func answerDeleted(c *cli.Context, d *cluster.Deleted) error {
	left := leftovers(d)
	next := nextAfterDelete(c, d)
	return stackAnswer(c, struct {
		*cluster.Deleted
		Stays []leftover `json:"stays"`
		Next  []string   `json:"next"`
	}{d, left, next}, deletedText(d, left), next...)
}

// nextAfterDelete returns the commands that delete the rest of what Terraform has made.
func nextAfterDelete(c *cli.Context, d *cluster.Deleted) []string {
	switch {
	case d.Function != "":
		return []string{"sam delete --stack-name " + d.Function, addressed(c, "hardtack stack delete") + " --yes"}
	case d.Terraform && d.Done:
		return []string{"terraform destroy"}
	}
	return []string{}
}

// leftover is a resource that outlives a deleted cluster, with the command that removes it.
type leftover struct {
	cluster.Left
	What    string `json:"what"`
	Command string `json:"command"`
}

const emptyBucket = "until aws s3api delete-bucket --bucket %[1]s; do aws s3api delete-objects --bucket %[1]s --delete \"$(aws s3api list-object-versions --bucket %[1]s --max-keys 500 --no-paginate --output json --query '{Quiet: `true`, Objects: [Versions, DeleteMarkers][][].{Key: Key, VersionId: VersionId}}')\" >/dev/null || break; done    # destroys every backup of etcd"

func leftoverOf(l cluster.Left) leftover {
	out := leftover{Left: l, What: string(l.Kind) + " " + l.Name}
	switch l.Kind {
	case cluster.LeftFunction:
		out.What, out.Command = "the function's stack "+l.Name, "sam delete --stack-name "+l.Name
	case cluster.LeftSecrets:
		out.What = fmt.Sprintf("%d parameters below %s: the authorities, and the key of the Secrets in etcd's snapshots", l.Count, l.Name)
		out.Command = fmt.Sprintf("aws ssm get-parameters-by-path --path %s --recursive --query 'Parameters[].Name' --output text | tr '\\t' '\\n' | xargs -n 10 aws ssm delete-parameters --names", l.Name)
	case cluster.LeftKey:
		out.What = "the stack of the secrets' key " + l.Name + "; when its key is deleted, the secrets and every copy of them are lost"
		out.Command = fmt.Sprintf("aws kms schedule-key-deletion --key-id $(aws cloudformation describe-stacks --stack-name %s --query 'Stacks[0].Outputs[0].OutputValue' --output text) && aws cloudformation delete-stack --stack-name %s", l.Name, l.Name)
	case cluster.LeftMember:
		// The command says again what it destroys: lists of commands are copied without their explanations.
		out.What = fmt.Sprintf("volume %s of etcd's member %s, %s: every object of the cluster is on it", l.Name, l.Member, l.Facts)
		out.Command = fmt.Sprintf("aws ec2 delete-volume --volume-id %s    # destroys etcd's member %s, %s", l.Name, l.Member, l.Facts)
	case cluster.LeftBackups:
		// A bucket with versions is deleted only when it is empty of every version; 500 are within the length of an argument.
		out.What = fmt.Sprintf("bucket %s of etcd's backups: %s; the cluster's next stack has to be told of it, by etcd.backup.to: s3://%[1]s", l.Name, l.Facts)
		out.Command = fmt.Sprintf(emptyBucket, l.Name)
	case cluster.LeftVolume:
		out.Command = "aws ec2 delete-volume --volume-id " + l.Name
	case cluster.LeftSnapshot:
		out.Command = "aws ec2 delete-snapshot --snapshot-id " + l.Name
	}
	return out
}
