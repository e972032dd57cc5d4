package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/registry"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func registryCommand() *cli.Command {
	return &cli.Command{
		Name:  "registry",
		Usage: "keep the credentials of container registries in a cluster's store, where its machines read them to pull images",
		Subcommands: []*cli.Command{
			{Name: "login", Usage: "put a registry's user and password into the store; the password is read from standard input, or asked for at a terminal",
				ArgsUsage:   "HOST",
				Description: "HOST is the registry's, or its mirror's, as the document names it in registries[].name. Machines take a new password within five minutes.",
				Flags:       append(storeFlags(), confirmFlags(&cli.StringFlag{Name: "username", Aliases: []string{"u"}, Usage: "the `USER`"})...),
				Action:      registryLogin},
			{Name: "list", Usage: "list the registries whose credentials are in the store, or should be there by the document; never passwords",
				Flags: storeFlags(), Action: registryList},
			{Name: "logout", Usage: "delete a registry's credentials from the store",
				ArgsUsage: "HOST", Flags: append(storeFlags(), confirmFlags()...), Action: registryLogout},
		},
	}
}

// registryStore is the registry that the command line names, and the store with its credentials. The document is nil where none is given.
func registryStore(c *cli.Context) (host, cluster string, doc *spec.Complete, s store.Store, err error) {
	if c.NArg() != 1 {
		return "", "", nil, nil, usagef("name one registry by its host, as in registry.example.org:5000 (see %s --help)", name(c))
	}
	if host = c.Args().First(); !spec.IsRegistry(host) {
		return "", "", nil, nil, usagef("%q is not the host of a registry: write the host alone, as in registry.example.org:5000", host)
	}
	cluster, doc, s, err = documentStore(c)
	return host, cluster, doc, s, err
}

// documentStore opens the store of the document, or of --cluster.
func documentStore(c *cli.Context) (cluster string, doc *spec.Complete, s store.Store, err error) {
	cluster, doc, location, err := storeOf(c)
	if err == nil {
		s, err = openLocation(c, location)
	}
	return cluster, doc, s, err
}

func registryLogin(c *cli.Context) error {
	if err := refuseYesAndDryRun(c); err != nil {
		return err
	}
	host, cluster, doc, s, err := registryStore(c)
	if err != nil {
		return err
	}
	user := c.String("username")
	if user == "" {
		return usagef("whose credentials? name the user with --username USER; the password is read from standard input")
	}
	password, err := readPassword(c, user, host)
	if err != nil {
		return err
	}
	credentials := pki.RegistryCredentials{Username: user, Password: password}
	err = registryChange(c, fmt.Sprintf("Replace the credentials of %s in %s, of cluster %s?", host, s, cluster), func(dry bool) (registry.Change, error) {
		return registry.Login(c.Context, s, host, credentials, dry)
	})
	if err == nil && doc != nil && !slices.Contains(doc.RegistriesWithCredentials(), host) {
		fmt.Fprintf(c.App.ErrWriter, "no machine asks for them yet; next: {name: %q, credentials: true} in registries of %s, and hardtack stack refresh\n", host, c.String("file"))
	}
	return err
}

func registryLogout(c *cli.Context) error {
	if err := refuseYesAndDryRun(c); err != nil {
		return err
	}
	host, cluster, _, s, err := registryStore(c)
	if err != nil {
		return err
	}
	return registryChange(c, fmt.Sprintf("Delete the credentials of %s from %s, of cluster %s?", host, s, cluster), func(dry bool) (registry.Change, error) {
		return registry.Logout(c.Context, s, host, dry)
	})
}

func registryChange(c *cli.Context, question string, run func(dry bool) (registry.Change, error)) error {
	return change[registry.Change]{
		question: question,
		run:      run,
		due:      func(ch registry.Change) bool { return ch.Action == registry.Replace || ch.Action == registry.Delete },
		text:     registryText,
		answer: func(ch registry.Change) error {
			if structured(c) {
				return printResult(c, ch)
			}
			_, err := io.WriteString(c.App.Writer, registryText(ch))
			return err
		},
	}.do(c)
}

func registryText(ch registry.Change) string {
	would := ""
	if ch.DryRun {
		would = "would "
	}
	text := fmt.Sprintf("%s%s credentials of %s", would, ch.Action, ch.Registry)
	if ch.Username != "" {
		text += ", user " + ch.Username
	}
	return text + ", in " + ch.Store + "\n"
}

// maxPassword is more than the store takes, in bytes.
const maxPassword = 1 << 16

// readPassword reads a password, without the end of its line.
func readPassword(c *cli.Context, user, host string) (string, error) {
	if atTerminal() {
		person, done := toPerson(c)
		defer done()
		fmt.Fprintf(person, "password of %s at %s: ", user, host)
		data, err := readHidden(c.Context)
		fmt.Fprintln(person)
		return string(data), err
	}
	data, err := readStdin(c.Context, maxPassword)
	if err != nil {
		return "", fmt.Errorf("reading the password from standard input: %w", err)
	}
	data = bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	if len(data) == 0 {
		return "", usagef("standard input has no password: hardtack registry login … <FILE, or PROGRAM | hardtack registry login …")
	}
	return string(data), nil
}

func registryList(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	_, doc, s, err := documentStore(c)
	if err != nil {
		return err
	}
	var hosts []string
	if doc != nil {
		hosts = doc.RegistriesWithCredentials()
	}
	items, err := registry.List(c.Context, s, hosts, doc != nil)
	if err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, struct {
			Store      string          `json:"store"`
			Registries []registry.Item `json:"registries"`
		}{s.String(), items})
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "REGISTRY\tUSER\tSTATE\n")
	for _, i := range items {
		state := string(i.State)
		if i.Problem != "" {
			state += ": " + i.Problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", i.Registry, dash(i.Username), dash(state))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = io.WriteString(c.App.Writer, text.String())
	return err
}
