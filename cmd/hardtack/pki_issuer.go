package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/publish"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func pkiIssuerCommand() *cli.Command {
	more := append(awsFlags(), clusterFlag(), storeFlag())
	return &cli.Command{
		Name: "issuer", Usage: "publish the keys by which others verify the tokens of the cluster's pods",
		Subcommands: []*cli.Command{
			{Name: "publish", Usage: "write the issuer's discovery document and its keys to where the document says, if they are not there; pki rotate service-account does so too from then on",
				Flags: append(slices.Clip(more), &cli.StringFlag{Name: "dir", Usage: "write them to a `DIRECTORY` instead, for a web server of your own"}), Action: issuerPublish},
			{Name: "check", Usage: "read what is published as everybody can, and fail if it is not the cluster's keys", Flags: more, Action: issuerCheck},
		},
	}
}

// documentIssuer is the issuer that a cluster document names, and the public keys in the cluster's store.
func documentIssuer(c *cli.Context) (doc *spec.Complete, s store.Store, public []byte, err error) {
	if err := noArguments(c); err != nil {
		return nil, nil, nil, err
	}
	if doc, err = readCluster(c); err != nil {
		return nil, nil, nil, err
	}
	if doc.PublicIssuer() == "" {
		return nil, nil, nil, fmt.Errorf("%s: the issuer of tokens is %s, which nobody outside the cluster can ask for keys; next: give the document serviceAccounts.issuer, a URL that begins with https",
			doc.Cluster.Name, doc.Cluster.ServiceAccounts.Issuer)
	}
	location, err := parseStore(cmp.Or(c.String("store"), doc.Cluster.Store))
	if err != nil {
		return nil, nil, nil, err
	}
	if s, err = openLocation(c, location); err != nil {
		return nil, nil, nil, err
	}
	public, err = s.Get(c.Context, pki.ServiceAccount+pki.Pub)
	return doc, s, public, err
}

// openIssuer is an issuer whose documents go to a location; empty is nowhere.
func openIssuer(c *cli.Context, r issuer.Record) (i publish.Issuer, err error) {
	i = publish.Issuer{URL: r.Issuer}
	if r.To != "" {
		i.Place, err = publish.Open(c.Context, r.To, func(ctx context.Context) (aws.Config, error) { return storeConfig(ctx, c) })
	}
	return i, err
}

func issuerPublish(c *cli.Context) error {
	doc, s, public, err := documentIssuer(c)
	if err != nil {
		return err
	}
	r := issuer.Record{Issuer: doc.PublicIssuer(), To: doc.Cluster.ServiceAccounts.PublishTo}
	dir := c.String("dir")
	switch {
	case dir != "":
		if dir, err = filepath.Abs(dir); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
		r.To = machine.BackupsDir + ":" + dir
	case r.To == spec.PublishNone:
		return usagef("nothing says where %s has its documents: give the document serviceAccounts.publishTo, or --dir", r.Issuer)
	}
	i, err := openIssuer(c, r)
	if err != nil {
		return err
	}
	changed, err := i.Write(c.Context, public)
	if err != nil {
		return err
	}
	if dir != "" && doc.Cluster.ServiceAccounts.PublishTo != r.To {
		r.To = "" // a copy, that somebody brings to where it is read: a rotation waits until it is there
	}
	if err := authority.RecordIssuer(c.Context, s, r); err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, struct {
			Issuer  string   `json:"issuer"`
			To      string   `json:"to"`
			Changed []string `json:"changed"`
		}{r.Issuer, i.Place.String(), append([]string{}, changed...)})
	}
	what := "as it was"
	if len(changed) > 0 {
		what = "wrote " + strings.Join(changed, " and ")
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s in %s: %s\n", r.Issuer, i.Place, what)
	return err
}

// recordedIssuer is the issuer whose keys were published, or nil.
func recordedIssuer(c *cli.Context, s store.Store) (authority.Issuer, error) {
	data, err := s.Get(c.Context, pki.PublicIssuer)
	if errors.Is(err, pki.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := issuer.ParseRecord(data)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", pki.PublicIssuer, s, err)
	}
	return openIssuer(c, r)
}

func issuerCheck(c *cli.Context) error {
	doc, _, public, err := documentIssuer(c)
	if err != nil {
		return err
	}
	issuer := publish.Issuer{URL: doc.PublicIssuer()}
	if err := issuer.Check(c.Context, public); err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, struct {
			Issuer string `json:"issuer"`
			Served bool   `json:"served"`
		}{issuer.URL, true})
	}
	_, err = fmt.Fprintf(c.App.Writer, "%s has the cluster's keys\n", issuer.URL)
	return err
}
