package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/mod/semver"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// Libraries return typed errors, without commands and flags. The next command or flag is worded in this file only.

// withStackHint adds the next step to an error of a stack command. Commands in it are for the same cluster.
func withStackHint(c *cli.Context, err error) error {
	verb := c.Command.Name
	if wrong, ok := errors.AsType[*template.ParameterError](err); ok {
		return errors.New(wrong.Named(func(parameter string) string {
			if name, ok := parameterFlags[parameter]; ok {
				return "--" + name
			}
			return parameter
		}))
	}
	if early, ok := errors.AsType[*cluster.TooEarlyError](err); ok {
		return usagef("--machines yes: stack %s does not exist yet: apply without it first, which creates and prepares the zone, then deploy the function, which maintains its records", early.Stack)
	}
	if ends, ok := errors.AsType[*cluster.EndsMachinesError](err); ok {
		return usagef("--machines no ends every machine of %s, and etcd's data where they are on no volume: confirm with --yes, nobody is at a terminal", ends.Cluster)
	}
	for _, hint := range stackHints {
		if text := hint(verb, err); text != "" {
			return fmt.Errorf("%w%s", err, addressed(c, text))
		}
	}
	return err
}

// hint makes a hint for errors of type E; words returns its text.
func hint[E error](words func(verb string, e E) string) func(string, error) string {
	return func(verb string, err error) string {
		if e, ok := errors.AsType[E](err); ok {
			return words(verb, e)
		}
		return ""
	}
}

// hintFor makes a hint with a fixed text for errors that match target.
func hintFor(target error, words string) func(string, error) string {
	return func(_ string, err error) string {
		if errors.Is(err, target) {
			return words
		}
		return ""
	}
}

var stackHints = []func(verb string, err error) string{
	hintFor(cloudformation.ErrNoStack, " (hardtack stack apply makes it)"),
	hintFor(cluster.ErrNoGroups, " (hardtack stack apply makes them)"),
	hintFor(pki.ErrNotFound, " (hardtack pki create records it, and creates the authorities, once)"),
	hint(func(_ string, e *cloudformation.StateError) string { return stateHint(e.Stack, e.Status) }),
	hint(func(_ string, e *cloudformation.Failure) string { return stateHint(e.Stack, e.Status) }),
	hint(func(string, *cloudformation.ProtectedError) string {
		return ": hardtack stack apply --protect=false removes the protection"
	}),
	hint(func(_ string, e *cloudformation.LossError) string {
		var names []string
		for _, c := range e.Losses {
			names = append(names, c.Resource)
		}
		return flagged("\nto allow this, add ", "--allow-replacement", names) + flagged("\nremove the unneeded ", "--allow-replacement", e.Unneeded)
	}),
	hint(func(string, *cloudformation.Interrupted) string {
		return "; hardtack stack status shows it, and the same command again waits for it"
	}),
	hint(func(verb string, _ *cluster.BusyError) string {
		if verb == "delete" {
			return " (hardtack stack status shows it)"
		}
		return " (hardtack stack apply waits for it)"
	}),
	hint(func(_ string, e *cluster.NoImageError) string {
		return fmt.Sprintf(" (hardtack image publish --channel %s … or hardtack image promote --channel %s IMAGE)", e.Channel, e.Channel)
	}),
	hint(func(_ string, e *cluster.UnknownImageError) string {
		return fmt.Sprintf("\npoint the channel at an image that is there: hardtack image list shows them, hardtack image promote --channel %s IMAGE does it, and hardtack image publish --channel %[1]s … makes a new one", e.Channel)
	}),
	hint(func(_ string, e *cluster.VotersError) string {
		text := ""
		for _, m := range e.Members {
			text += "\nremove it first: hardtack etcd remove --wait " + m + " (with the document that still has it)"
		}
		return text
	}),
	hint(func(_ string, e *cluster.RefreshingError) string {
		text := ""
		for _, g := range e.Groups {
			text += fmt.Sprintf("\nwait for its end (hardtack stack refresh --group %s watches it), or roll it back (hardtack stack rollback --group %s)", g.Key, g.Key)
		}
		return text
	}),
	hint(func(_ string, e *cluster.TooLargeError) string {
		return fmt.Sprintf(": give --template-bucket BUCKET, a bucket in %s that these credentials may write and read, through which it goes", e.Region)
	}),
	hint(func(string, *cluster.KeyNotAppliedError) string {
		return "; hardtack stack apply allows it, and changes no machine"
	}),
	hint(func(_ string, e *cluster.KeyChangeError) string {
		text := "; run hardtack pki create --rekey"
		if e.Want != store.DefaultKey {
			text += " without aws.secretsKey in the document, and then go on with the new key"
		}
		return text + ": it takes the secrets back to AWS's key, which every machine may use"
	}),
	hint(func(string, *cluster.UnpreparedError) string { return "; the same command again prepares the zone" }),
	hint(func(string, *cluster.NotEndedError) string {
		return "; hardtack stack status shows them, run the same command again to continue"
	}),
	hint(func(_ string, e *cluster.RewrittenError) string {
		return " (sam delete --stack-name " + cluster.FunctionStack(e.Cluster) + ")"
	}),
	hint(refusalHint),
	hint(func(verb string, e *rollout.UnreadError) string {
		return "\nsolve the problem and run this again; hardtack stack status shows the others" + flagged(", and these need none of it: hardtack stack "+verb+" ", "--group", e.Safe)
	}),
	hint(func(string, *cluster.UnreadableError) string {
		return "\nsolve the problem and apply again; hardtack stack status shows the other groups"
	}),
	hint(skewHint),
	hintFor(rollout.ErrUnknownVersion, ": hardtack stack status shows the images of the machines; an image says its version if hardtack image publish finds its image.json beside the disk"),
	hint(func(_ string, e *cluster.ImageVersionError) string {
		return fmt.Sprintf("\nwrite version: %q in the document, or point the channel at an image of %s: hardtack image list shows them, hardtack image promote --channel %s IMAGE does it", minorOf(e.Kubernetes), e.Document, e.Channel)
	}),
	hint(func(string, *cluster.OpeningsError) string {
		return "; give the image's own description with --manifest IMAGE.JSON, or take the hardtack that made the image"
	}),
	hint(func(_ string, e *rollout.RefreshError) string {
		return ", or hardtack stack rollback --group " + e.Group.Key
	}),
	hint(func(_ string, e *rollout.StuckError) string {
		text := "hardtack stack status shows every machine"
		if e.Step.Action == rollout.Watch {
			text = "AutoScaling continues; " + text
		}
		if e.Group != "" {
			text += "; solve the problem and run this again, or hardtack stack rollback --group " + e.Group
		}
		return " (" + text + ")"
	}),
	hint(func(_ string, e *rollout.Interrupted) string {
		if !e.Refreshing {
			return ""
		}
		return ", or with --cancel-on-interrupt to be able to end it"
	}),
}

// stateHint returns the next step for a stack in this state.
func stateHint(stack, status string) string {
	switch {
	case cloudformation.OnlyDeletable(status):
		return ": hardtack stack delete --yes, and then apply again"
	case cloudformation.NeedsRollback(status):
		return ": aws cloudformation continue-update-rollback --stack-name " + stack
	case status == "UPDATE_ROLLBACK_COMPLETE":
		return ""
	}
	return ": aws cloudformation describe-stack-events --stack-name " + stack
}

func refusalHint(verb string, e *rollout.Refusal) string {
	var lose []string
	for _, l := range e.Losses {
		lose = append(lose, l.Group)
	}
	return flagged("\nthese groups are safe: hardtack stack "+verb+" ", "--group", e.Safe) + flagged("\nto continue nevertheless, with a snapshot of etcd at hand, add ", "--lose-etcd", lose)
}

// skewHint says, for each rule once, by which way the cluster comes to the versions, or to others.
func skewHint(verb string, e *rollout.SkewError) string {
	if verb == "upgrade" {
		return ""
	}
	var lines []string
	add := func(line string) {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	for _, s := range e.Skews {
		switch between := s.Between(); {
		case between != "":
			add(fmt.Sprintf("go over %s first: version: %[1]q in the document, an image of it (hardtack image list, hardtack image promote), then hardtack stack apply and hardtack stack refresh", between))
		case s.Rule == rollout.SkipsMinor:
			add("bring all masters to one minor version first: hardtack stack status shows them")
		case s.Rule == rollout.GoesBack && verb == "rollback":
			add("minions alone can go back; the masters' objects of before are in etcd's backups: hardtack etcd restore")
		case s.Rule == rollout.GoesBack:
			add("point the channel at an image of " + minorOf(s.API) + " or the minor version after it (hardtack image list, hardtack image promote)")
		case s.Rule == rollout.KubeletNewer && verb == "apply":
			add("refresh the masters before " + s.Group + " grows: hardtack stack apply with its size as it is, hardtack stack refresh, and then again with the new size")
		case s.Rule == rollout.KubeletNewer:
			add("refresh the masters first: hardtack stack refresh, without --group, does so")
		case verb == "rollback":
			add("roll back to a version of the launch template with a newer image: --to " + s.Group + "=VERSION")
		default:
			add("refresh these first: hardtack stack refresh --group " + s.Group)
		}
	}
	return "\n" + strings.Join(lines, "\n") + "\nto do it nevertheless, add --allow-skew"
}

// minorOf is the minor version of a version, such as 1.36.
func minorOf(version string) string {
	return strings.TrimPrefix(semver.MajorMinor(version), "v")
}

// flagged repeats a flag for each value, after the text before; empty without values.
func flagged(before, flag string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	return before + flag + " " + strings.Join(values, " "+flag+" ")
}
