package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/rollout"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func upgradeCommand() *cli.Command {
	return &cli.Command{
		Name:  "upgrade",
		Usage: "print the steps that bring a cluster on AWS to another version of Kubernetes, in their order; nothing is changed",
		Flags: append(awsFlags(),
			clusterFlag(),
			&cli.StringFlag{Name: "stack", Usage: "the stack's `NAME` (default: hardtack-<cluster>)"},
			&cli.StringFlag{Name: "to", Usage: "the minor `VERSION` to go to, such as 1.36 (default: the document's)"},
		),
		Action: onStack(upgrade),
	}
}

// upgradePlan is the output of `hardtack upgrade --json`.
type upgradePlan struct {
	Cluster string `json:"cluster"`
	To      string `json:"to"`
	// Masters and Minions are the versions of Kubernetes that these machines have, as v1.35.4.
	Masters []string `json:"masters"`
	Minions []string `json:"minions"`
	// Document is the minor version of the document, Image the channel's image and Kubernetes its version; empty is not known.
	Document   string        `json:"document_version"`
	Image      string        `json:"image"`
	Kubernetes string        `json:"kubernetes"`
	Steps      []upgradeStep `json:"steps"`
}

// upgradeStep is one thing to do.
type upgradeStep struct {
	// Version is the minor version that it is a part of, as 1.35.
	Version string `json:"version"`
	What    string `json:"what"`
	// Command can be pasted; empty is for a person.
	Command string `json:"command,omitempty"`
}

func upgrade(c *cli.Context, k *cluster.Cluster) error {
	s, err := k.Status(c.Context)
	if err != nil {
		return err
	}
	state := rollout.State{Cluster: k.Name(), Groups: s.Groups}
	p := &upgradePlan{
		Cluster: k.Name(), To: cmp.Or(c.String("to"), s.Document), Masters: versionsWith(state, role.Masters), Minions: versionsWith(state, role.Minions),
		Document: s.Document, Image: s.Image, Kubernetes: s.Kubernetes[s.Image], Steps: []upgradeStep{},
	}
	if known := spec.Versions(); !slices.Contains(known, p.To) {
		return usagef("--to: %q is none of the versions of Kubernetes that this program knows: %s", p.To, strings.Join(known, ", "))
	}
	hops, err := state.Way(p.To)
	if err != nil {
		return err
	}
	if len(hops) > 0 {
		images, err := upgradeImages(c, p.Image)
		if err != nil {
			return err
		}
		w := &way{c: c, plan: p, channel: k.Channel(), images: images, applied: s.Stack.Resolved[template.ParameterImage]}
		for _, h := range hops {
			w.add(h)
		}
	}
	return stackAnswer(c, p, upgradeText(p))
}

// versionsWith are the versions of Kubernetes of the machines with a role, each once, sorted.
func versionsWith(s rollout.State, r role.Role) []string {
	out := []string{}
	for _, g := range s.Groups {
		for _, m := range g.Machines {
			if v := cmp.Or(m.Kubernetes, "unknown"); g.Roles.Has(r) && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	slices.Sort(out)
	return out
}

// upgradeImages are the region's images that can be launched, the newest first: those for the same machines as the channel's.
func upgradeImages(c *cli.Context, channel string) ([]ami.Image, error) {
	conf, err := loadAWS(c.Context, c)
	if err != nil {
		return nil, err
	}
	all, err := cloud.New(conf, cloud.Options{}).Find(c.Context, map[string]string{ami.TagImage: ""})
	if err != nil {
		return nil, err
	}
	architecture := ""
	if i := slices.IndexFunc(all, func(i ami.Image) bool { return i.ID == channel }); i >= 0 {
		architecture = all[i].Architecture
	}
	return slices.DeleteFunc(all, func(i ami.Image) bool {
		return i.State != ami.Available || architecture != "" && i.Architecture != architecture
	}), nil
}

// way collects steps. The first hop may be half done: what is so already is left out.
type way struct {
	c       *cli.Context
	plan    *upgradePlan
	channel string
	images  []ami.Image
	// applied is the image of the stack.
	applied string
}

// add adds the steps of a minor version.
func (w *way) add(h rollout.Hop) {
	first := len(w.plan.Steps) == 0
	add := func(what, command string) {
		w.plan.Steps = append(w.plan.Steps, upgradeStep{Version: h.Minor, What: what, Command: command})
	}
	for _, group := range h.First {
		add("refresh "+group+", whose kubelets are too old for masters of "+h.Minor, addressed(w.c, "hardtack stack refresh")+" --group "+group)
	}
	if !first || w.plan.Document != h.Minor {
		add(fmt.Sprintf("write version: %q in the document", h.Minor), "")
	}
	ready := first && minorOf(w.plan.Kubernetes) == h.Minor
	if !ready {
		w.promote(h.Minor, add)
	}
	if !ready || w.applied != w.plan.Image {
		add("have the stack launch machines of it; none is replaced", addressed(w.c, "hardtack stack apply"))
	}
	add("replace the masters, and then the minions", addressed(w.c, "hardtack stack refresh"))
}

// promote points the channel at the newest image of a minor version, or says how to make one.
func (w *way) promote(minor string, add func(what, command string)) {
	at := given(w.c, "region", "endpoint-url")
	i := slices.IndexFunc(w.images, func(i ami.Image) bool { return minorOf(i.Kubernetes()) == minor })
	if i < 0 {
		add(fmt.Sprintf("there is no image of it: bake one, in Packer with lock = %q", "kubernetes-"+minor), "")
		add("publish it", "hardtack image publish"+at+" --channel "+w.channel+" build/hardtack.qcow2")
		return
	}
	image := w.images[i]
	add(fmt.Sprintf("point the channel at %s, Kubernetes %s", image.Name, image.Kubernetes()), "hardtack image promote"+at+" --channel "+w.channel+" "+image.ID)
}

func upgradeText(p *upgradePlan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s: masters %s; minions %s\ndocument: %s; the channel's image: %s, %s\n",
		p.Cluster, dash(strings.Join(p.Masters, ", ")), dash(strings.Join(p.Minions, ", ")), p.Document, p.Image, kubernetesText(p.Kubernetes))
	if len(p.Steps) == 0 {
		fmt.Fprintf(&b, "every machine has Kubernetes %s: nothing is to be done\n", p.To)
	}
	version := ""
	for _, s := range p.Steps {
		if s.Version != version {
			version = s.Version
			fmt.Fprintf(&b, "to %s:\n", version)
		}
		fmt.Fprintf(&b, "  # %s\n", s.What)
		if s.Command != "" {
			fmt.Fprintf(&b, "  %s\n", s.Command)
		}
	}
	return b.String()
}
