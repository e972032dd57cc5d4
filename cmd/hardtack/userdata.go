package main

import (
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func userdataCommand() *cli.Command {
	return &cli.Command{
		Name:  "userdata",
		Usage: "print the user data for the machines of a group: role files and what differs from the image; no secrets but the token of --machine, at most 16 KB. As JSON or YAML it is a summary",
		Flags: []cli.Flag{
			clusterFlag(),
			&cli.StringFlag{Name: "group", Usage: "the `GROUP`, by name"},
			&cli.StringFlag{Name: "role", Usage: "the only group whose machines have exactly these `ROLES`, such as masters+etcd"},
			&cli.StringFlag{Name: "ca", Usage: "the `FILE` with the cluster's public CA certificate in PEM, as printed by hardtack pki ca"},
			&cli.StringFlag{Name: "machine", Usage: "for one machine, the `NODE` of that name: make a bootstrap token that is good for it alone, once, within a day; needs --kubeconfig"},
			&cli.StringFlag{Name: "kubeconfig", Usage: "an administrator's kubeconfig, a `FILE`, for --machine"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			complete, ca, err := readTrusted(c)
			if err != nil {
				return err
			}
			group, err := chooseGroup(complete, c.String("group"), c.String("role"))
			if err != nil {
				return err
			}
			if c.String("machine") != "" || c.String("kubeconfig") != "" {
				return userdataFor(c, complete, group, ca)
			}
			data, err := complete.UserData(group, ca)
			if err != nil {
				return err
			}
			if structured(c) {
				return printUserData(c, complete, group, ca, data)
			}
			_, err = c.App.Writer.Write(data)
			return err
		},
	}
}

// userdataFor makes a token for one machine and prints user data with it.
func userdataFor(c *cli.Context, complete *spec.Complete, group string, ca []byte) error {
	name, kubeconfig := c.String("machine"), c.String("kubeconfig")
	switch {
	case name == "" || kubeconfig == "":
		return usagef("--machine and --kubeconfig belong together: the token is made in the cluster")
	case structured(c):
		return usagef("--output json or yaml prints no user data, and a token for --machine would be lost")
	}
	bound, err := pki.MachineGroup(name)
	if err != nil {
		return usagef("--machine: %w", err)
	}
	g, err := complete.Group(group)
	if err != nil {
		return err
	}
	if !g.Roles.Has(role.Minions) {
		return usagef("--machine: the machines of the group %s are no nodes: they have the roles %s", group, g.Roles)
	}
	token := pki.NewToken(time.Now())
	text, err := token.Marshal()
	if err != nil {
		return err
	}
	data, err := complete.UserData(group, ca, spec.File{Path: pki.MachineTokenPath, Content: text, Mode: "0600"})
	if err != nil {
		return err
	}
	if err := kube.NewFile(kubeconfig).Apply(c.Context, controller.Secret(token, pki.GroupBootstrappers, bound)); err != nil {
		return fmt.Errorf("making a bootstrap token for the machine %s: %w", name, err)
	}
	_, err = c.App.Writer.Write(data)
	return err
}

// readTrusted reads the cluster and the public CA that its machines trust.
func readTrusted(c *cli.Context) (*spec.Complete, []byte, error) {
	ca, err := readCA(c.String("ca"))
	if err != nil {
		return nil, nil, err
	}
	complete, err := readCluster(c)
	if err == nil && ca == nil {
		fmt.Fprintf(c.App.ErrWriter, "no CA is in these user data: the machines take the one in %s; --ca FILE puts it in, and hardtack pki ca prints it\n", complete.Cluster.Store)
	}
	return complete, ca, err
}

// readCA reads the public CA, and refuses a file with anything but certificates.
func readCA(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	data, err := file.ReadUpTo(name, spec.MaxInput)
	if err != nil {
		return nil, usagef("--ca: %w", err)
	}
	count := 0
	for rest := data; ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, usagef("--ca: %s holds %s: only the public certificate belongs into user data", name, strings.ToLower(block.Type))
		}
	}
	switch {
	case count == 0:
		return nil, usagef("--ca: %s holds no certificate in PEM", name)
	case count > pki.MaxTrusted:
		return nil, usagef("--ca: %s holds %d certificates, and machines take at most %d: an old authority and its successor", name, count, pki.MaxTrusted)
	}
	return data, nil
}

// chooseGroup returns the name of the group with this name, or else of the only one with these roles.
func chooseGroup(c *spec.Complete, group, roles string) (string, error) {
	var names []string
	for _, g := range c.Groups {
		names = append(names, g.Name)
	}
	switch {
	case group != "" && roles != "":
		return "", usagef("--group and --role both select the group: give one")
	case group != "" && !slices.Contains(names, group):
		return "", usagef("--group: there is no group %q: the groups are %s", group, strings.Join(names, ", "))
	case group != "":
		return group, nil
	case roles == "":
		return "", usagef("select a group with --group or --role: the groups are %s", strings.Join(names, ", "))
	}
	set, err := role.ParseSet(roles)
	if err != nil {
		return "", usagef("--role: %w", err)
	}
	var found []string
	for _, g := range c.Groups {
		if slices.Equal(g.Roles, set) {
			found = append(found, g.Name)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if len(found) > 1 {
		return "", usagef("--role: several groups have the roles %s: select one with --group: %s", set, strings.Join(found, ", "))
	}
	return "", usagef("--role: no group has exactly the roles %s: the groups are %s", set, strings.Join(names, ", "))
}

// printUserData prints a summary of the user data.
func printUserData(c *cli.Context, complete *spec.Complete, group string, ca, data []byte) error {
	type file struct {
		Path  string `json:"path"`
		Mode  string `json:"mode"`
		Bytes int    `json:"bytes"`
	}
	hash, err := complete.Hash(group, ca)
	if err != nil {
		return err
	}
	result, problems := userdata.Parse(data, nil)
	if err := problems.Err(); err != nil {
		return fmt.Errorf("reading the user data as a machine does: %w", err)
	}
	out := struct {
		Group string   `json:"group"`
		Roles role.Set `json:"roles"`
		Hash  string   `json:"hash"`
		Bytes int      `json:"bytes"`
		Files []file   `json:"files"`
	}{group, result.Roles, hash, len(data), nil}
	for _, f := range result.Files {
		out.Files = append(out.Files, file{f.Path, fmt.Sprintf("%04o", uint32(f.Mode)), len(f.Content)})
	}
	return printResult(c, out)
}
