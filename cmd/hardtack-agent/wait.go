package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/wait"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/systemd"
)

// clusterCA is the public CA of the Kubernetes API, which user data brings.
const clusterCA = "/etc/hardtack/ca.crt"

const waitUsage = `usage: hardtack-agent wait [flags] [URL...]

Waits until every --file is there, and one of the URLs answers 200 at one of its addresses with a certificate
of the CA; for ever, unless --timeout says otherwise. The unit's status says what is waited for.

  --api            https://masters.<cluster>.k8s:<port>/readyz
  --local-api      https://127.0.0.1:<port>/readyz
  --node           this machine's Node, asked for with --cert and --key
  --etcd           /health of the cluster's etcd members, or of the one on this machine where they have no names
  --file A[,B]     a file that must be there and not be empty, or one of several; may be repeated
  --unless FILE    wait for no answer where this file is there already
  --ca FILE        the CA (/etc/hardtack/ca.crt)
  --cert, --key    the client's certificate and key, for servers that want one
  --timeout 0      give up after this long; 0 is never
  --root DIR       where etc/hardtack/machine.yaml is (/)
  -v               say more
`

// waitFlags is the command line of hardtack-agent wait.
type waitFlags struct {
	api, local, etcd, node bool
	files                  [][]string
	probe                  probe.Client
	timeout                time.Duration
	unless, root           string
	verbose                bool
}

func (f *waitFlags) parse(args []string) ([]string, error) {
	flags := flag.NewFlagSet("wait", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&f.api, "api", false, "")
	flags.BoolVar(&f.local, "local-api", false, "")
	flags.BoolVar(&f.etcd, "etcd", false, "")
	flags.BoolVar(&f.node, "node", false, "")
	flags.Func("file", "", func(value string) error {
		f.files = append(f.files, strings.Split(value, ","))
		return nil
	})
	flags.StringVar(&f.probe.CA, "ca", clusterCA, "")
	flags.StringVar(&f.probe.Certificate, "cert", "", "")
	flags.StringVar(&f.probe.Key, "key", "", "")
	flags.DurationVar(&f.timeout, "timeout", 0, "")
	flags.StringVar(&f.unless, "unless", "", "")
	flags.StringVar(&f.root, "root", "/", "")
	flags.BoolVar(&f.verbose, "v", false, "")
	err := flags.Parse(args)
	return flags.Args(), err
}

// waitCommand is hardtack-agent wait.
func waitCommand(ctx context.Context, args []string, s streams) error {
	var f waitFlags
	urls, err := f.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := fmt.Fprint(s.out, waitUsage)
		return err
	case err != nil:
		return usageError{fmt.Errorf("wait: %w", err)}
	case (f.probe.Certificate == "") != (f.probe.Key == ""):
		return usageError{errors.New("wait: --cert and --key go together")}
	case f.node && f.probe.Certificate == "":
		return usageError{errors.New("wait: --node needs --cert and --key")}
	case !f.api && !f.local && !f.etcd && !f.node && len(urls) == 0 && len(f.files) == 0:
		return usageError{errors.New("wait: nothing to wait for: give a URL, --api, --local-api, --etcd or --file")}
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("gave up after %v", f.timeout))
		defer cancel()
	}
	if err := f.run(ctx, urls, s); err != nil {
		return fail(s, "wait", err)
	}
	systemd.Status("")
	return nil
}

// run waits for the files first: what the URLs are may stand in them.
func (f *waitFlags) run(ctx context.Context, urls []string, s streams) error {
	o := wait.Options{Files: f.files, Status: systemd.Status, Log: logger(s.err, f.verbose)}
	if err := wait.Run(ctx, o); err != nil {
		return err
	}
	targets, err := f.targets(urls)
	if err != nil {
		return err
	}
	o.Files, o.Targets, o.Resolver, o.Prober = nil, targets, &net.Resolver{PreferGo: true}, &f.probe
	return wait.Run(ctx, o)
}

// targets lists what is to answer. The machine file is only read where a flag needs it.
func (f *waitFlags) targets(urls []string) ([]*url.URL, error) {
	if _, err := os.Stat(f.unless); f.unless != "" && err == nil {
		return nil, nil
	}
	if f.api || f.local || f.etcd || f.node {
		c, err := config.Read(f.root)
		if err != nil {
			return nil, err
		}
		known, err := f.known(c)
		if err != nil {
			return nil, err
		}
		urls = append(urls, known...)
	}
	var out []*url.URL
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			return nil, usageError{fmt.Errorf("wait: %q is not a URL of the form https://host[:port]/path", text)}
		}
		out = append(out, u)
	}
	return out, nil
}

// known lists the URLs that the flags stand for.
func (f *waitFlags) known(c machine.Config) (urls []string, err error) {
	if f.api {
		urls = append(urls, apiURL("masters."+c.Domain(), c.API.Port)+"/readyz")
	}
	if f.local {
		urls = append(urls, apiURL("127.0.0.1", c.API.Port)+"/readyz")
	}
	if f.node {
		name, err := nodeName(f.root)
		if err != nil {
			return nil, reason.With(reason.File, err)
		}
		urls = append(urls, apiURL("masters."+c.Domain(), c.API.Port)+"/api/v1/nodes/"+name)
	}
	if f.etcd && len(c.Etcd.Members) == 0 {
		urls = append(urls, "https://127.0.0.1:2379/health")
	}
	if f.etcd {
		for _, m := range c.Etcd.Members {
			urls = append(urls, "https://etcd-"+m+"."+c.Domain()+":2379/health")
		}
	}
	return urls, nil
}

func apiURL(host string, port int) string {
	return "https://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// fail writes the line for programs about an error of a verb, and returns the error for people. What was not
// understood has no such line: a unit with a wrong command line is found by its test.
func fail(s streams, verb string, err error) error {
	var usage usageError
	if errors.As(err, &usage) || errors.Is(err, context.Canceled) {
		return err
	}
	unit := systemd.Unit()
	if unit == "" {
		unit = "hardtack-agent " + verb
	}
	return errors.Join(err, reason.Explain(unit, err).Write(s.out))
}
