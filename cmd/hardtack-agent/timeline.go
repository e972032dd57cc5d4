package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/boot"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/sealed"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// timelineCommand is hardtack-agent timeline.
func timelineCommand(ctx context.Context, args []string, s command.Streams) error {
	flags := flag.NewFlagSet("timeline", flag.ContinueOnError)
	root := flags.String("root", "/", "")
	asJSON := flags.Bool("json", false, "")
	if done, err := command.ParseFlags(flags, args, s, usage); done || err != nil {
		return err
	}
	manager, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer manager.Close()
	marks, err := timeline.LoadMarks(*root)
	if err != nil {
		return err
	}
	t, err := buildTimeline(ctx, manager, *root, marks)
	if err != nil {
		return err
	}
	if !*asJSON {
		return printTimeline(s.Out, t)
	}
	return printJSON(s.Out, t)
}

// showTimeline stores the marks for hardtack-agent timeline, and writes the line for the journal and the console.
func showTimeline(ctx context.Context, manager timeline.Manager, root string, marks []timeline.Mark, w io.Writer) error {
	if err := timeline.SaveMarks(root, marks); err != nil {
		return err
	}
	t, err := buildTimeline(ctx, manager, root, marks)
	if err != nil {
		return err
	}
	return t.Write(w)
}

// buildTimeline builds the timeline of this machine from its service manager's data and the marks.
func buildTimeline(ctx context.Context, manager timeline.Manager, root string, marks []timeline.Mark) (timeline.Timeline, error) {
	roles, err := config.Roles(root)
	if err != nil {
		return timeline.Timeline{}, err
	}
	name, err := kubelet.NodeName(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return timeline.Timeline{}, err
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return timeline.Timeline{}, err
	}
	hash, err := rootHash()
	if err != nil {
		return timeline.Timeline{}, err
	}
	m := timeline.Machine{Instance: boot.ReadFacts(root).Instance, Node: name, Roles: roles.String(), Boot: strings.TrimSpace(string(id)), RootHash: hash}
	return timeline.Read(ctx, manager, m, timelineUnits(roles), marks, systemd.Monotonic())
}

// rootHash is that by which the kernel was told to open the root; empty is a root that is written to.
func rootHash() (string, error) {
	text, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	return sealed.RootHash(string(text))
}

// printTimeline prints the timeline as a table.
func printTimeline(w io.Writer, t timeline.Timeline) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tab, "begin\texec\tactive\tcpu\t  ms since the kernel began\n")
	fmt.Fprintf(tab, "%d\t\t\t\t  firmware and loader\n%d\t\t\t\t  service manager\n", -t.Firmware-t.Loader, t.Userspace)
	for _, u := range t.Units {
		fmt.Fprintf(tab, "%d\t%d\t%d\t%d\t  %s\n", u.Begin, u.Exec, u.Active, u.CPU, u.Unit)
	}
	for _, m := range t.Marks {
		fmt.Fprintf(tab, "%d\t\t\t\t  %s\n", m.At, m.Name)
	}
	fmt.Fprintf(tab, "%d\t\t\t\t  ready (0: not yet); of it the agent worked %d, waited %d, and used %d of CPU\n", t.Ready, t.Agent.Work, t.Agent.Wait, t.Agent.CPU)
	return tab.Flush()
}

// timelineUnits lists the units of a boot.
func timelineUnits(roles role.Set) []string {
	return append([]string{"systemd-networkd.service", "systemd-resolved.service", "hardtack-userdata.service", "hardtack-ready.service"}, readyUnits(roles)...)
}
