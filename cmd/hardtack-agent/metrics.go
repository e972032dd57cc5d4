package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/exporter"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// metricsAgain is the time until the port is tried again that another program has.
const metricsAgain = 30 * time.Second

// newExporter makes the exporter of this master.
func newExporter(f certsFlags, api *kube.File, log *slog.Logger) *exporter.Exporter {
	status := func(ctx context.Context) (*operate.Report, error) {
		members, err := membersOf(ctx, f)
		if err != nil {
			return nil, err
		}
		return (&operate.Cluster{Name: f.effective.Cluster, Members: members, Records: f.store, Clock: clock.System{}}).Status(ctx)
	}
	self := func() ([]netip.Addr, error) {
		host, err := certs.ThisHost()
		return host.Addresses, err
	}
	pods := func(ctx context.Context, app string) ([]exporter.Target, error) {
		found, err := api.Addresses(ctx, app)
		var out []exporter.Target
		for _, name := range slices.Sorted(maps.Keys(found)) {
			out = append(out, exporter.Target{Name: name, Address: found[name]})
		}
		return out, err
	}
	return &exporter.Exporter{
		Lists: exporter.NewLists(api.Nodes, pods),
		Dir:   filepath.Join(f.root, pki.Dir, pki.DirController), Roles: f.effective.Roles, Now: time.Now, Log: log,
		Sources: []exporter.Source{
			exporter.Etcd(status),
			exporter.Nodes(api.Nodes),
			exporter.DNS(role.Masters.Host(f.effective.Cluster), lookupHost, self),
			exporter.Certificates(os.DirFS(f.root), strings.TrimPrefix(pki.Dir, "/")),
		},
	}
}

// membersOf are the names of etcd's members, which only the store may know.
func membersOf(ctx context.Context, f certsFlags) ([]string, error) {
	data, err := f.store.Get(ctx, pki.PublicInfo)
	if err != nil {
		return nil, err
	}
	info, err := machine.ParseInfo(pki.PublicInfo, data)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", pki.PublicInfo, f.store, err)
	}
	if len(info.Etcd.Members) == 0 {
		return []string{machine.LoneMember}, nil
	}
	return info.Etcd.Members, nil
}

// lookupHost asks as every program of the machine does. A name that does not exist has no addresses.
func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	// With the dot no search domain is tried.
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host+".")
	var none *net.DNSError
	if errors.As(err, &none) && none.IsNotFound {
		return nil, nil
	}
	return found, err
}

// serveMetrics serves until ctx ends. The controller works without it.
func serveMetrics(ctx context.Context, e *exporter.Exporter) {
	for {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", role.MetricsPort))
		if err == nil {
			err = e.Serve(ctx, listener)
		}
		if ctx.Err() != nil {
			return
		}
		e.Log.Warn("metrics are not served, which is tried again", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(metricsAgain):
		}
	}
}
