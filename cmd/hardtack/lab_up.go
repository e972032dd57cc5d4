//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// defaultImage is the path to which `make image` writes the disk.
const defaultImage = "build/hardtack.qcow2"

// endTime bounds the shutdown of a lab.
const endTime = time.Minute

func labUpCommand() *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "start a lab and wait until its cluster is ready; Ctrl-C stops it again",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", EnvVars: []string{"HARDTACK_LAB"}, Usage: "the lab's `NAME` (default: the cluster's)"},
			clusterFlagOr(" (default: one control plane machine and two minions)"),
			&cli.StringFlag{Name: "image", EnvVars: []string{"HARDTACK_IMAGE"}, Value: defaultImage, Usage: "the baked disk, a qcow2 `FILE`; not needed with --empty"},
			&cli.BoolFlag{Name: "empty", Usage: "start only the simulated AWS region, without a cluster; hardtack stack can then create one in it (see hardtack lab aws)"},
			&cli.BoolFlag{Name: "detach", Usage: "return as soon as the machines are starting"},
			&cli.BoolFlag{Name: "keep", Usage: "keep the lab running if waiting fails or is interrupted"},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "give up if no machine makes progress for this `DURATION`"},
		},
		Action: labUp,
	}
}

func labUp(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	image, arch, err := labImage(c)
	if err != nil {
		return err
	}
	name, text, err := readSpec(c, arch)
	if err != nil {
		return err
	}
	complete, err := completeText(c, name, text)
	if err != nil {
		return err
	}
	if _, err := lab.PlanOf(complete); err != nil {
		return err
	}
	if err := fitsDisk(name, complete, image, arch); err != nil {
		return err
	}
	h, err := newLabHome(c, complete.Cluster.Name)
	if err != nil {
		return err
	}
	if err := startLab(c, h, text, image); err != nil {
		return err
	}
	switch started := c.Bool("detach") || c.Bool("empty"); {
	case !started:
		return awaitLab(c, h)
	case structured(c):
		s, err := lab.NewClient(h).Status(c.Context)
		if err != nil {
			return err
		}
		return printResult(c, s)
	}
	return nil
}

// labImage returns the path of the baked disk and its architecture, which is empty where no partition says it; with --empty none, since
// machines then start from published images.
func labImage(c *cli.Context) (path, arch string, err error) {
	if c.Bool("empty") {
		return "", "", nil
	}
	image, err := filepath.Abs(c.String("image"))
	if err != nil {
		return "", "", fmt.Errorf("finding the image: %w", err)
	}
	if _, err := os.Stat(image); err != nil {
		return "", "", fmt.Errorf("looking for the baked disk: %w (make image makes it, --image names another)", err)
	}
	arch, err = lab.ArchOf(image)
	return image, arch, err
}

// fitsDisk says why the document's machines are not of a disk: its architecture, or the minor version of Kubernetes that the
// image.json beside it has. A version that the document does not name is none that anybody asked for: it goes with every disk.
func fitsDisk(name string, d *spec.Complete, image, arch string) error {
	if is := d.Cluster.Arch; arch != "" && is != arch {
		return usagef("starting machines from %s: the disk is of %s, and arch of %s is %s (write arch: %s, or name another disk by --image)", image, arch, name, is, arch)
	}
	if image == "" || d.Origins["version"].Kind != spec.User {
		return nil
	}
	baked, err := bake.ReadManifest(filepath.Join(filepath.Dir(image), "image.json"))
	if err != nil {
		return nil //nolint:nilerr // a disk starts without a description, and beside one of an earlier Hardtack
	}
	if has, is := minorOf(baked.Kubernetes), d.Cluster.Version; has != "" && has != is {
		return usagef("starting machines from %s: the disk has Kubernetes %s, and version of %s is %s (write version: \"%s\", bake one by make image KUBERNETES=%s, or name another disk by --image)", image, has, name, is, has, is)
	}
	return nil
}

func newLabHome(c *cli.Context, cluster string) (lab.Home, error) {
	root, err := lab.DefaultRoot(os.Getenv)
	if err != nil {
		return lab.Home{}, err
	}
	name := c.String("name")
	if name == "" {
		name = cluster
	}
	h, err := lab.NewHome(root, name)
	if err != nil {
		return lab.Home{}, usagef("--name: %w", err)
	}
	return h, nil
}

// readSpec reads the cluster document, or returns the default one, of the disk's architecture.
func readSpec(c *cli.Context, arch string) (name string, text []byte, err error) {
	file := c.String("file")
	if file == "" {
		text := lab.DefaultCluster
		if arch != "" {
			text += "arch: " + arch + "\n"
		}
		return "the default cluster", []byte(text), nil
	}
	return documentText(c, file)
}

// startLab starts the daemon and waits until it answers.
func startLab(c *cli.Context, h lab.Home, text []byte, image string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	done, err := h.Starting()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	document, err := h.WriteSpec(text)
	if err != nil {
		return err
	}
	command := run.Command{Name: self, Args: []string{"--verbose", "lab", "daemon", "--name", h.Name, "--file", document, "--image", image}, Dir: "/"}
	if c.Bool("empty") {
		command.Args = append(command.Args, "--empty")
	}
	if err := h.StartDaemon(c.Context, command); err != nil {
		return err
	}
	logger(c).Info("the lab has started", "name", h.Name, "directory", h.Dir)
	return nil
}

// awaitLab shows the machines' progress until the cluster is ready. If that fails, it ends the lab, unless --keep is
// set.
func awaitLab(c *cli.Context, h lab.Home) error {
	client := lab.NewClient(h)
	err := watchLab(c, client, c.Duration("timeout"))
	if err == nil {
		err = labReady(c, h, client)
	}
	if err == nil || c.Bool("keep") {
		return err
	}
	logger(c).Info("ending the lab (--keep leaves it up)", "name", h.Name, "consoles", h.Dir)
	return errors.Join(err, h.Abandon(context.WithoutCancel(c.Context), endTime))
}

// labReady writes the host's kubeconfig and prints the next commands.
func labReady(c *cli.Context, h lab.Home, client *lab.Client) error {
	if err := client.WriteKubeconfig(c.Context); err != nil {
		return err
	}
	s, err := client.Status(c.Context)
	if err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, s)
	}
	if err := printStatus(c.App.Writer, s); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "\nhardtack lab kubectl --name %s get nodes    # or: export KUBECONFIG=%s\nhardtack lab down --name %s\n", h.Name, h.Kubeconfig(), h.Name)
	return err
}

// labDaemonCommand is the daemon that up starts; it is hidden.
func labDaemonCommand() *cli.Command {
	return &cli.Command{
		Name:   "daemon",
		Usage:  "run a lab in the foreground until SIGTERM (started by up)",
		Hidden: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Required: true},
			&cli.StringFlag{Name: "file", Required: true},
			&cli.StringFlag{Name: "image"},
			&cli.BoolFlag{Name: "empty"},
		},
		Action: func(c *cli.Context) error {
			name, text, err := readSpec(c, "")
			if err != nil {
				return err
			}
			complete, err := completeText(c, name, text)
			if err != nil {
				return err
			}
			plan, err := lab.PlanOf(complete)
			if err != nil {
				return err
			}
			plan.Empty = c.Bool("empty")
			h, err := newLabHome(c, plan.Cluster.Name)
			if err != nil {
				return err
			}
			if _, err := os.Stat(c.String("image")); !plan.Empty && errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("looking for the baked disk: %w", err)
			}
			return lab.Run(c.Context, lab.Config{
				Home: h, Plan: plan, Image: c.String("image"), Runner: lab.Machines, Log: logger(c),
			}, func() {})
		},
	}
}
