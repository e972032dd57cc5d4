package bake

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/rootfs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// cleanup takes away what makes one machine different from another: with it, every machine of the
// image would be the same one. Each line is something that the first boot makes anew.
func (b *baker) cleanup(ctx context.Context) error {
	_, err := b.script(ctx, `
set -e
if [ -s /etc/machine-id ] || ! [ -e /etc/machine-id ]; then : >/etc/machine-id; fi
if [ -e /var/lib/dbus/machine-id ] && ! [ -L /var/lib/dbus/machine-id ]; then rm -f /var/lib/dbus/machine-id; fi
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
rm -f /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
if command -v cloud-init >/dev/null; then cloud-init clean --logs >&2; fi`, nil)
	return err
}

// verify reads back what was written, and looks for what no image may hold. It reports everything
// that it finds.
func (b *baker) verify(ctx context.Context) error {
	var findings problem.List
	for _, check := range []func(context.Context, *problem.List) error{b.verifyTree, b.verifyClean, b.verifyKeys, b.verifyUnits} {
		if err := check(ctx, &findings); err != nil {
			return err
		}
	}
	findings.Sort()
	for _, f := range findings {
		if f.Severity == problem.Warning {
			b.result.Warnings = append(b.result.Warnings, f.String())
		}
	}
	return findings.Err()
}

// verifyTree compares mode, owner, link, size and digest of everything that the bake put there.
func (b *baker) verifyTree(ctx context.Context, findings *problem.List) error {
	for _, tree := range []*rootfs.Tree{b.job.Tree, b.metadata} {
		found, err := b.observe(ctx, tree)
		if err != nil {
			return err
		}
		for e := range tree.All() {
			at, there := found[e.Path]
			if what := differs(e, at, there); what != "" {
				findings.Add(problem.Problem{File: e.Path, Rule: "tree", Text: what,
					Hint: "the stream to the target lost data, or something there changed it: run the build again"})
			}
		}
	}
	return nil
}

// leftover is something that no image may hold; find is the command that prints its paths.
type leftover struct{ rule, text, hint, find string }

func leftovers() []leftover {
	const same = "every machine of the image would have the same one"
	return []leftover{
		{"machine-id", "the machine id is not empty", same, "find /etc/machine-id /var/lib/dbus/machine-id -type f -size +0"},
		{"host-key", "a host key of ssh is in the image", same, "find /etc/ssh -name 'ssh_host_*'"},
		{"role-file", "a role file is in the image", "a machine takes its role from its user data",
			"find " + role.Dir + " -name '" + role.Prefix + "*'"},
		{"containers", "state of a container engine is in the image", "bake on a machine that has run no containers",
			"find /var/lib/docker /var/lib/containerd /var/lib/containers /var/lib/kubelet /var/lib/etcd -mindepth 1 -maxdepth 1"},
		{"package-lists", "package lists are in the image", "remove /var/lib/apt/lists/*",
			"find /var/lib/apt/lists -type f -name '*_Packages*'"},
	}
}

// verifyClean looks for what belongs to one machine, or to the build, in one script: each is a round
// trip to the target.
func (b *baker) verifyClean(ctx context.Context, findings *problem.List) error {
	var script strings.Builder
	rules := map[string]leftover{}
	for _, l := range leftovers() {
		rules[l.rule] = l
		fmt.Fprintf(&script, "%s -printf '%s %%p\\n' 2>/dev/null\n", l.find, l.rule)
	}
	out, err := b.script(ctx, script.String()+":", nil) // find fails for directories that are not there
	if err != nil {
		return fmt.Errorf("looking for what no image may hold: %w", err)
	}
	for line := range strings.Lines(out) {
		rule, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		findings.Add(problem.Problem{File: file, Rule: rule, Text: rules[rule].text, Hint: rules[rule].hint})
	}
	return nil
}

// verifyKeys looks for private keys: a line that is the header of one, in a text file of a size that
// a key can have. Container images are as their registry has them, with the keys of their test suites.
func (b *baker) verifyKeys(ctx context.Context, findings *problem.List) error {
	out, err := b.script(ctx, `
find /etc /usr /root /home /var/lib /opt /srv -xdev -path '`+rootfs.ImagesDir+`/*/rootfs/*' -prune -o -type f -size -1024k -print0 2>/dev/null |
xargs -0r grep -lI -E -e '^[[:space:]]*-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----[[:space:]]*$' -- || :`, nil)
	if err != nil {
		return fmt.Errorf("looking for private keys: %w", err)
	}
	for line := range strings.Lines(out) {
		findings.Add(problem.Problem{File: strings.TrimSpace(line), Rule: "private-key",
			Text: "a private key is in the image", Hint: "keys are made on the machine, or read from the cluster's store"})
	}
	return nil
}

// verifyUnits lets systemd load the target's units as it would at boot, and reads what it says about
// them: its exit status is 0 even where it deletes jobs to break a cycle. Programs and required units
// are only looked for of the units that are named, so all of the tree's are.
func (b *baker) verifyUnits(ctx context.Context, findings *problem.List) error {
	var units []string
	for e := range b.job.Tree.All() {
		if dir, name := path.Split(e.Path); path.Clean(dir) == rootfs.UnitDir && e.Mode.IsRegular() && !strings.Contains(name, "@.") {
			units = append(units, name)
		}
	}
	var out, errs bytes.Buffer
	exit, err := b.target.Run(ctx, prelude+"SYSTEMD_LOG_LEVEL=warning SYSTEMD_LOG_TARGET=console SYSTEMD_COLORS=0 "+
		"systemd-analyze verify --man=no multi-user.target "+quoteAll(units), nil, &out, &errs)
	if err != nil {
		return fmt.Errorf("asking systemd about the units: %w", err)
	}
	text := errs.String() + out.String()
	found := parseVerify(text, func(unit string) bool {
		return b.job.Tree.Has(rootfs.UnitDir+"/"+unit) || b.job.Tree.Has(unit)
	})
	if exit != 0 && len(found) == 0 {
		return errors.New("asking systemd about the units: " + (&scriptError{exit: exit, output: text}).Error())
	}
	*findings = append(*findings, found...)
	return nil
}
