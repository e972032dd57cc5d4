package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/probe"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/systemd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

const (
	// restartLease is the lease of the master whose API server is away, and restartLife the time after which another one
	// takes it: the start of kube-apiserver.service may take as long.
	restartLease = "hardtack-restart"
	restartLife  = 15 * time.Minute
	// restartWait bounds the wait for the lease, and for the answer of another member of etcd.
	restartWait, healthWait = 10 * time.Minute, 10 * time.Second
)

// restart starts the daemons again that read only at their start what was replaced.
func (f *certsFlags) restart(ctx context.Context, s command.Streams, only string) error {
	pending := certs.PendingRestarts(f.root)
	if len(pending) == 0 {
		return nil
	}
	if !f.booted() {
		s.Logger(f.verbose).WarnContext(ctx, "systemd does not run here: start these daemons again", "daemons", strings.Join(pending, " "))
		return nil
	}
	manager, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer manager.Close()
	return certs.Restart(ctx, certs.RestartOptions{
		Root: f.root, Only: only, Member: f.effective.Etcd.Member, Members: f.effective.Etcd.Members, Now: time.Now,
		Healthy: f.etcdHealthy, Alone: f.aloneAmongMasters, Restart: manager.Restart,
		Sleep: func(ctx context.Context, d time.Duration) error {
			systemd.Status(fmt.Sprintf("starts etcd again in %v, after the members before it", d.Round(time.Second)))
			return (clock.System{}).Sleep(ctx, d)
		},
	})
}

// booted reports whether systemd runs the machine.
func (f *certsFlags) booted() bool {
	_, err := os.Stat(filepath.Join(f.root, "run/systemd/system"))
	return !errors.Is(err, fs.ErrNotExist)
}

// noteLost has restart start the kubelet again where the API server has lost this machine's node.
func (f *certsFlags) noteLost(ctx context.Context, s command.Streams, node string) error {
	if !f.booted() {
		return nil
	}
	manager, err := systemd.NewManager(ctx)
	if err != nil {
		return err
	}
	defer manager.Close()
	self := &kube.Self{File: kube.NewFile(filepath.Join(f.root, kubeletKubeconfig)), Name: node}
	lost, err := certs.NoteLost(ctx, certs.LostOptions{
		Root: f.root, Sleep: (clock.System{}).Sleep,
		Running: func(ctx context.Context) (time.Duration, error) {
			units, err := manager.Units(ctx, pki.DirKubelet+".service")
			if err != nil || units[0].Active != "active" {
				return 0, err
			}
			return time.Duration(systemd.Monotonic()-units[0].ActiveEnter) * time.Microsecond, nil
		},
		Exists: func(ctx context.Context) (bool, error) {
			ctx, cancel := context.WithTimeout(ctx, healthWait)
			defer cancel()
			return self.Exists(ctx)
		},
	})
	if lost {
		s.Logger(f.verbose).WarnContext(ctx, "the API server does not have this machine's node any more: the kubelet is started again, and makes it anew", "node", node)
	}
	return err
}

// etcdHealthy asks another member of etcd as a client.
func (f *certsFlags) etcdHealthy(ctx context.Context, member string) error {
	target, err := url.Parse(machine.EtcdURL(f.effective.Cluster, member) + "/health")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	file := func(name string) string { return filepath.Join(f.root, pki.Dir, pki.DirEtcd, name) }
	_, err = (&probe.Client{CA: file("ca.crt"), Certificate: file("server.crt"), Key: file("server.key")}).Get(ctx, target)
	return err
}

// aloneAmongMasters calls do while no other master does, and returns when this master's API server is ready. If it is not
// ready before, there is nothing to be careful with.
func (f *certsFlags) aloneAmongMasters(ctx context.Context, do func(context.Context) error) error {
	client, err := kube.NewFile(filepath.Join(f.root, pki.Dir, pki.DirController, "kubeconfig")).Client()
	if err != nil {
		return err
	}
	if client.Ready(ctx) != nil {
		return do(ctx)
	}
	host, err := certs.ThisHost()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, restartWait)
	defer cancel()
	return client.Alone(ctx, kube.Lease{Name: restartLease, Holder: host.Name, Life: restartLife}, func(ctx context.Context) error {
		if err := do(ctx); err != nil {
			return err
		}
		for {
			err := client.Ready(ctx)
			if err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return err
			case <-time.After(time.Second):
			}
		}
	})
}
