package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdkhttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func pkiCommand() *cli.Command {
	return &cli.Command{
		Name:  "pki",
		Usage: "create and inspect a cluster's certificate authorities and keys, in its store",
		Subcommands: []*cli.Command{
			{Name: "create", Usage: "create the missing authorities and keys, and record the settings that all machines must share; nothing is ever replaced",
				Flags:  append(storeFlags(), &cli.BoolFlag{Name: "rekey", Usage: "encrypt every secret again, with the document's aws.secretsKey"}),
				Action: pkiCreate},
			{Name: "show", Usage: "list the stored objects with their expiry and fingerprints; never keys",
				Flags: storeFlags(), Action: pkiShow},
			{Name: "verify", Usage: "print the problems of the stored objects, and fail if there are any",
				Flags: storeFlags(), Action: pkiVerify},
			{Name: "ca", Usage: "print the CA certificate that every machine trusts, or another authority's",
				Flags: append(storeFlags(), &cli.StringFlag{Name: "authority", Usage: "the authority's `NAME`, as pki show lists it without its directory: kubelet-serving-ca (default: what every machine trusts)"}), Action: pkiCA},
			{Name: "rotate", Usage: "replace a key of a running cluster, step by step", Subcommands: pkiRotate()},
			{Name: "policy", Usage: "print the IAM policy for the instance role of machines with the given roles",
				Flags: append(storeFlags(), &cli.StringFlag{Name: "role", Usage: "the machines' `ROLES`, such as masters+etcd"},
					&cli.StringFlag{Name: "secrets-key", Usage: "the customer `KEY` of the secrets, an alias or an ARN (default: the document's, or else AWS's)"}),
				Action: pkiPolicy},
			pkiKubeconfigCommand(),
			pkiIssuerCommand(),
		},
	}
}

func storeFlags() []cli.Flag {
	return append(awsFlags(), clusterFlag(),
		&cli.StringFlag{Name: "cluster", Usage: "the cluster's `NAME`, where no document is given"},
		storeFlag())
}

func storeFlag() cli.Flag {
	return &cli.StringFlag{Name: "store", Usage: "the store's `LOCATION`: ssm:/path or dir:PATH (default: the document's, which is ssm:/hardtack/<cluster>)"}
}

// label matches a cluster's name, which is a label of its machines' DNS names.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// openStore opens the store of the flags. A relative directory is relative to the working directory.
func openStore(c *cli.Context) (store.Store, error) {
	_, location, err := chosenStore(c)
	if err != nil {
		return nil, err
	}
	return openLocation(c, location)
}

func openLocation(c *cli.Context, location store.Location) (store.Store, error) {
	return store.Open(c.Context, location, func(ctx context.Context) (aws.Config, error) { return storeConfig(ctx, c) })
}

func storeConfig(ctx context.Context, c *cli.Context) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithEC2IMDSRegion(),
		config.WithRetryMaxAttempts(storeAttempts),
		config.WithHTTPClient(sdkhttp.NewBuildableClient().WithTimeout(storeTimeout)),
	}
	return loadAWS(ctx, c, options...)
}

const (
	// storeAttempts allows for throttling: Parameter Store takes three writes a second, and creating makes many.
	storeAttempts = 10
	// storeTimeout bounds one try, so that an address that never answers is reported within a minute.
	storeTimeout = 10 * time.Second
)

// chosenCluster is the name of the cluster of the document, or else that of --cluster.
func chosenCluster(c *cli.Context) (string, error) {
	if c.String("file") != "" {
		complete, err := documentOf(c)
		if err != nil {
			return "", err
		}
		return complete.Cluster.Name, nil
	}
	cluster := c.String("cluster")
	if cluster == "" {
		return "", usagef("which cluster? name its document with -f FILE, or in the variable %s, or the cluster with --cluster NAME (see %s --help)", clusterVariable, name(c))
	}
	return cluster, nil
}

// documentOf is the document of --file, which is that of --cluster if both are given.
func documentOf(c *cli.Context) (*spec.Complete, error) {
	complete, err := readCluster(c)
	if err != nil {
		return nil, err
	}
	if name := c.String("cluster"); name != "" && name != complete.Cluster.Name {
		return nil, usagef("--cluster %s: %s is the document of %s: leave one of both out", name, c.String("file"), complete.Cluster.Name)
	}
	return complete, nil
}

// chosenStore is the cluster of the flags with its store.
func chosenStore(c *cli.Context) (cluster string, at store.Location, err error) {
	if err := noArguments(c); err != nil {
		return "", at, err
	}
	cluster, _, at, err = storeOf(c)
	return cluster, at, err
}

// storeOf is the cluster of the flags with its document, which is nil where none is given, and its store.
func storeOf(c *cli.Context) (cluster string, doc *spec.Complete, at store.Location, err error) {
	kept := ""
	if c.String("file") != "" {
		if doc, err = documentOf(c); err != nil {
			return "", nil, at, err
		}
		cluster, kept = doc.Cluster.Name, doc.Cluster.Store
	} else {
		if cluster, err = chosenCluster(c); err != nil {
			return "", nil, at, err
		}
		if !label.MatchString(cluster) {
			return "", nil, at, usagef("--cluster %q: not a DNS label (a to z, 0 to 9 and -, at most 63)", cluster)
		}
		kept = machine.DefaultStore(cluster)
	}
	at, err = parseStore(cmp.Or(c.String("store"), kept))
	return cluster, doc, at, err
}

func parseStore(text string) (store.Location, error) {
	if dir, ok := strings.CutPrefix(text, store.KindDir+":"); ok && dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return store.Location{}, fmt.Errorf("--store %s: %w", text, err)
		}
		text = store.KindDir + ":" + abs
	}
	location, err := store.ParseLocation(text)
	if err != nil {
		return store.Location{}, usagef("--store: %w", err)
	}
	return location, nil
}

func pkiCreate(c *cli.Context) error {
	complete, location, err := toCreate(c)
	if err != nil {
		return err
	}
	s, err := openLocation(c, location)
	if err != nil {
		return err
	}
	note, err := settleKey(c, complete, s)
	if err != nil {
		return withStackHint(c, err)
	}
	made, err := authority.Create(c.Context, s, complete.Info(), time.Now())
	if err != nil {
		return fmt.Errorf("%w\nthe objects created so far stay; run the same command again to continue", err)
	}
	if note != "" {
		fmt.Fprintln(c.App.ErrWriter, note)
	}
	if structured(c) {
		return printResult(c, struct {
			Store   string           `json:"store"`
			Objects []authority.Made `json:"objects"`
		}{s.String(), made})
	}
	w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
	for _, m := range made {
		fmt.Fprintf(w, "%s\t%s\n", m.Action, m.Object)
	}
	return w.Flush()
}

// toCreate returns the cluster of --file, or a default one named by --cluster, and the location of its store.
func toCreate(c *cli.Context) (complete *spec.Complete, at store.Location, err error) {
	if c.String("file") == "" {
		cluster, at, err := chosenStore(c)
		if err != nil {
			return nil, at, err
		}
		complete, err = completeText(c, "the default cluster "+cluster, spec.Minimal(cluster))
		return complete, at, err
	}
	if err := noArguments(c); err != nil {
		return nil, at, err
	}
	if complete, err = documentOf(c); err != nil {
		return nil, at, err
	}
	at, err = parseStore(cmp.Or(c.String("store"), complete.Cluster.Store))
	return complete, at, err
}

// inspection is the output of show and verify.
type inspection struct {
	Store string           `json:"store"`
	Items []authority.Item `json:"items"`
}

func inspect(c *cli.Context) (inspection, error) {
	if err := noArguments(c); err != nil {
		return inspection{}, err
	}
	cluster, doc, s, err := documentStore(c)
	if err != nil {
		return inspection{}, err
	}
	items, err := authority.Inspect(c.Context, s, time.Now())
	if err != nil {
		return inspection{}, err
	}
	for i, item := range items {
		if item.Object == pki.PublicInfo && item.Problem == "" {
			if items[i].Problem, err = otherCluster(c.Context, s, cluster, doc); err != nil {
				return inspection{}, err
			}
		}
	}
	return inspection{s.String(), items}, nil
}

// otherCluster says what the facts in a store have that is not the cluster's, whose document may be nil. The names of etcd's
// members may be other ones: hardtack stack apply writes them.
func otherCluster(ctx context.Context, s store.Store, cluster string, doc *spec.Complete) (string, error) {
	agreed, err := authority.Agreed(ctx, s)
	if err != nil {
		return "", err
	}
	want := agreed
	want.Cluster = cluster
	if doc != nil {
		want = doc.Info()
		want.Etcd = agreed.Etcd
	}
	differ := strings.Join(want.Differences(agreed), "; ")
	if agreed.Cluster != cluster {
		differ += " (is it the store of another cluster?)"
	}
	return differ, nil
}

func pkiShow(c *cli.Context) error {
	found, err := inspect(c)
	if err != nil {
		return err
	}
	if structured(c) {
		return printResult(c, found)
	}
	return printItems(c.App.Writer, found)
}

func printItems(out io.Writer, found inspection) error {
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\nOBJECT\tKIND\tSUBJECT\tEXPIRES\tSHA-256\n", found.Store)
	for _, i := range found.Items {
		expires := ""
		if i.Expires != nil {
			expires = i.Expires.UTC().Format(time.DateOnly)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", i.Object, i.Kind, i.Subject, expires, i.Fingerprint)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(table.String()) {
		// A row with empty cells at its end would end in blanks.
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return printProblems(out, found)
}

func printProblems(out io.Writer, found inspection) error {
	for _, i := range found.Items {
		if i.Problem == "" {
			continue
		}
		hint := ""
		if i.Missing {
			hint = " (hardtack pki create makes it)"
		}
		if _, err := fmt.Fprintf(out, "%s: %s%s\n", i.Object, i.Problem, hint); err != nil {
			return err
		}
	}
	return nil
}

func pkiVerify(c *cli.Context) error {
	found, err := inspect(c)
	if err != nil {
		return err
	}
	wrong := 0
	for _, i := range found.Items {
		if i.Problem != "" {
			wrong++
		}
	}
	if structured(c) {
		err = printResult(c, found)
	} else {
		err = printProblems(c.App.Writer, found)
	}
	if err == nil && wrong > 0 {
		err = fmt.Errorf("%d of %d objects of %s are wrong", wrong, len(found.Items), found.Store)
	}
	return err
}

func pkiCA(c *cli.Context) error {
	s, err := openStore(c)
	if err != nil {
		return err
	}
	object := pki.PublicKubernetes
	if name := c.String("authority"); name != "" {
		i := slices.IndexFunc(pki.Authorities(), func(a string) bool { return path.Base(a) == name })
		if i < 0 {
			return usagef("--authority %q: none of %s", name, strings.Join(pki.Authorities(), ", "))
		}
		object = pki.Authorities()[i] + pki.Crt
	}
	data, err := s.Get(c.Context, object)
	if err != nil {
		return err
	}
	certs, err := pki.ParseTrusted(data)
	if err != nil {
		return fmt.Errorf("%s: %w", object, err)
	}
	text := pki.EncodeCertificates(certs)
	if structured(c) {
		return printResult(c, struct {
			Object string `json:"object"`
			// PEM are the certificates.
			PEM string `json:"pem"`
		}{object, string(text)})
	}
	_, err = c.App.Writer.Write(text)
	return err
}

func pkiPolicy(c *cli.Context) error {
	if err := noArguments(c); err != nil {
		return err
	}
	_, doc, location, err := storeOf(c)
	if err != nil {
		return err
	}
	roles, err := role.ParseSet(c.String("role"))
	if err != nil || len(roles) == 0 {
		return usagef("--role %q: name roles as hardtack roles does: masters+etcd", c.String("role"))
	}
	key := c.String("secrets-key")
	if doc != nil && !c.IsSet("secrets-key") {
		key = doc.SecretsKey()
	}
	policy, err := store.Policy(location, pki.AccessOfAll(roles), key)
	if err != nil {
		return err
	}
	return printDocument(c, policy)
}

func readAuthority(ctx context.Context, s store.Store, name string) (pki.Authority, error) {
	cert, err := s.Get(ctx, name+pki.Crt)
	if err != nil {
		return pki.Authority{}, err
	}
	key, err := s.Get(ctx, name+pki.Key)
	if err != nil {
		return pki.Authority{}, err
	}
	a, err := pki.ParseAuthority(cert, key)
	if err != nil {
		return pki.Authority{}, fmt.Errorf("%s of %s: %w", name, s, err)
	}
	return a, nil
}
