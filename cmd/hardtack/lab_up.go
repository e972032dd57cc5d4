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

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
	"github.com/hardtack/packer-plugin-hardtack/pkg/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// defaultImage is where `make image` puts the disk.
const defaultImage = "build/hardtack.qcow2"

// endTime is how long a lab that is not wanted any more may take to end.
const endTime = time.Minute

func labUpCommand() *cli.Command {
	return &cli.Command{
		Name:  "up",
		Usage: "start a lab and wait until its cluster is ready; Ctrl-C ends it again",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", EnvVars: []string{"HARDTACK_LAB"}, Usage: "the lab's `NAME`; left out, the cluster's"},
			&cli.StringFlag{Name: "f", Aliases: []string{"file"}, Usage: "the cluster's `FILE`; left out, one control plane and two minions"},
			&cli.StringFlag{Name: "image", EnvVars: []string{"HARDTACK_IMAGE"}, Value: defaultImage, Usage: "the baked disk, a qcow2 `FILE`; --empty has no use for it"},
			&cli.BoolFlag{Name: "empty", Usage: "start the region without a cluster, for hardtack stack to make one in it (hardtack lab aws says how to reach it)"},
			&cli.BoolFlag{Name: "detach", Usage: "return as soon as the machines are being started"},
			&cli.BoolFlag{Name: "keep", Usage: "leave the lab up when the wait is broken off or fails"},
			&cli.DurationFlag{Name: "timeout", Value: 5 * time.Minute, Usage: "give up when no machine has got on, nor said anything, for this `TIME`"},
			jsonFlag(),
		},
		Action: labUp,
	}
}

func labUp(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	name, text, err := readSpec(c.String("f"))
	if err != nil {
		return err
	}
	complete, err := completeSpec(name, text)
	if err != nil {
		return err
	}
	if _, err := lab.PlanOf(complete); err != nil {
		return err
	}
	image, err := labImage(c)
	if err != nil {
		return err
	}
	h, err := newLabHome(c, complete.Cluster.Name)
	if err != nil {
		return err
	}
	if err := startLab(c, h, text, image); err != nil {
		return err
	}
	if c.Bool("detach") || c.Bool("empty") {
		return nil
	}
	return awaitLab(c, h)
}

// labImage is the baked disk; in an empty region machines start from the images that are published there.
func labImage(c *cli.Context) (string, error) {
	if c.Bool("empty") {
		return "", nil
	}
	image, err := filepath.Abs(c.String("image"))
	if err != nil {
		return "", fmt.Errorf("finding the image: %w", err)
	}
	if _, err := os.Stat(image); err != nil {
		return "", fmt.Errorf("looking for the baked disk: %w (make image makes it, --image names another)", err)
	}
	return image, nil
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

// readSpec reads the cluster's document, or the default one.
func readSpec(file string) (name string, text []byte, err error) {
	if file == "" {
		return "the default cluster", []byte(lab.DefaultCluster), nil
	}
	text, err = os.ReadFile(file)
	if err != nil {
		return "", nil, usagef("reading the cluster: %w", err)
	}
	return file, text, nil
}

func completeSpec(name string, text []byte) (*spec.Complete, error) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return nil, err
	}
	cluster, problems := spec.Parse(name, text)
	if err := problems.Err(); err != nil {
		return nil, err
	}
	complete, problems := cluster.Complete(image)
	return complete, problems.Err()
}

// startLab starts the daemon and waits until it answers.
func startLab(c *cli.Context, h lab.Home, text []byte, image string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	document, err := h.WriteSpec(text)
	if err != nil {
		return err
	}
	command := run.Command{Name: self, Args: []string{"--verbose", "lab", "daemon", "--name", h.Name, "--f", document, "--image", image}, Dir: "/"}
	if c.Bool("empty") {
		command.Args = append(command.Args, "--empty")
	}
	if err := h.StartDaemon(c.Context, command); err != nil {
		return errors.Join(err, h.Abandon(context.WithoutCancel(c.Context), endTime))
	}
	logger(c).Info("the lab has started", "name", h.Name, "directory", h.Dir)
	return nil
}

// awaitLab shows how the machines come up, until all is ready. What is not wanted any more ends, unless --keep.
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

// labReady writes the host's kubeconfig and prints what there is now.
func labReady(c *cli.Context, h lab.Home, client *lab.Client) error {
	if err := client.WriteKubeconfig(c.Context); err != nil {
		return err
	}
	s, err := client.Status(c.Context)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return printJSON(c.App.Writer, s)
	}
	if err := printStatus(c.App.Writer, s); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.App.Writer, "\nhardtack lab kubectl --name %s get nodes    # or: export KUBECONFIG=%s\nhardtack lab down --name %s\n", h.Name, h.Kubeconfig(), h.Name)
	return err
}

// labDaemonCommand is what up starts; it is not for people.
func labDaemonCommand() *cli.Command {
	return &cli.Command{
		Name:   "daemon",
		Usage:  "run a lab in the foreground until SIGTERM (what up starts)",
		Hidden: true,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Required: true},
			&cli.StringFlag{Name: "f", Required: true},
			&cli.StringFlag{Name: "image"},
			&cli.BoolFlag{Name: "empty"},
		},
		Action: func(c *cli.Context) error {
			name, text, err := readSpec(c.String("f"))
			if err != nil {
				return err
			}
			complete, err := completeSpec(name, text)
			if err != nil {
				return err
			}
			plan, err := lab.PlanOf(complete)
			if err != nil {
				return err
			}
			plan.Empty = c.Bool("empty")
			h, err := newLabHome(c, plan.Cluster)
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
