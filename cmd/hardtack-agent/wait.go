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
	"path/filepath"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/wait"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

var waitUsage = `usage: hardtack-agent wait [flags] [URL...]

Waits until every --file exists, and one of the URLs answers 200 at one of its addresses with a certificate
of the CA; without --timeout, forever. The unit's status shows what it is waiting for.

  --api            https://` + role.Masters.Host("<cluster>") + `:<port>/readyz; on a master as --local-api
  --local-api      https://127.0.0.1:<port>/readyz
  --node           this machine's Node object, requested with --cert and --key
  --etcd           /health of the cluster's etcd members, or of this machine's if the members have no names
  --file A[,B]     a file that must exist and not be empty, or one of several; may be repeated
  --unless FILE    wait for no answer if this file exists already
  --ca FILE        the CA (default: the cluster's; /etc/hardtack/ca.crt for URLs alone)
  --cert, --key    the client's certificate and key, for servers that ask for one
  --timeout 0      give up after this duration; 0 is never
  --root DIR       the machine's root directory (default: /)
  -v               log in more detail
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
	flags.StringVar(&f.probe.CA, "ca", "", "")
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
func waitCommand(ctx context.Context, args []string, s command.Streams) error {
	var f waitFlags
	urls, err := f.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := fmt.Fprint(s.Out, waitUsage)
		return err
	case err != nil:
		return command.UsageError{Err: fmt.Errorf("wait: %w", err)}
	case (f.probe.Certificate == "") != (f.probe.Key == ""):
		return command.UsageError{Err: errors.New("wait: --cert and --key go together")}
	case f.node && f.probe.Certificate == "":
		return command.UsageError{Err: errors.New("wait: --node needs --cert and --key")}
	case !f.api && !f.local && !f.etcd && !f.node && len(urls) == 0 && len(f.files) == 0:
		return command.UsageError{Err: errors.New("wait: nothing to wait for: give a URL, --api, --local-api, --etcd or --file")}
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("gave up after %v", f.timeout))
		defer cancel()
	}
	if err := f.run(ctx, urls, s); err != nil {
		return s.Fail("hardtack-agent wait", err)
	}
	systemd.Status("")
	s.Works(command.NoPhase)
	return nil
}

// run waits for the files first, since the URLs may come from them.
func (f *waitFlags) run(ctx context.Context, urls []string, s command.Streams) error {
	o := wait.Options{Files: f.files, Status: systemd.Status, Log: s.Logger(f.verbose)}
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

// targets lists the URLs to wait for. It reads the machine's configuration only if a flag needs it.
func (f *waitFlags) targets(urls []string) ([]*url.URL, error) {
	if _, err := os.Stat(f.unless); f.unless != "" && err == nil {
		return nil, nil
	}
	if f.api || f.local || f.etcd || f.node {
		effective, err := command.ReadConfig(f.root)
		if err != nil {
			return nil, err
		}
		if f.probe.CA == "" {
			f.probe.CA = filepath.Join(f.root, effective.CA())
		}
		known, err := f.known(effective)
		if err != nil {
			return nil, err
		}
		urls = append(urls, known...)
	}
	if f.probe.CA == "" {
		f.probe.CA = machine.CAPath
	}
	var out []*url.URL
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
			return nil, command.UsageError{Err: fmt.Errorf("wait: %q is not a URL of the form https://host[:port]/path", text)}
		}
		out = append(out, u)
	}
	return out, nil
}

// known lists the URLs of the flags.
func (f *waitFlags) known(c config.Effective) (urls []string, err error) {
	if f.api {
		urls = append(urls, c.APIServer(c.Roles)+"/readyz")
	}
	if f.local {
		urls = append(urls, c.APIServer(role.NewSet(role.Masters))+"/readyz")
	}
	if f.node {
		name, err := kubelet.NodeName(f.root)
		if err != nil {
			return nil, reason.With(reason.File, err)
		}
		urls = append(urls, c.APIServer(c.Roles)+"/api/v1/nodes/"+name)
	}
	if f.etcd && len(c.Etcd.Members) == 0 {
		urls = append(urls, fmt.Sprintf("https://127.0.0.1:%d/health", role.EtcdClientPort))
	}
	if f.etcd {
		for _, m := range c.Etcd.Members {
			urls = append(urls, machine.EtcdURL(c.Cluster, m)+"/health")
		}
	}
	return urls, nil
}
