package certs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// The environment files with the settings of units that follow from the cluster's etcd. They do not exist if etcd is a
// single member beside its API server.
const (
	EtcdEnvFile      = "/run/hardtack/etcd.env"
	APIServerEnvFile = "/run/hardtack/kube-apiserver.env"
)

// LearnOptions are the options of Learn.
type LearnOptions struct {
	// Root is the root directory of the machine; "" is "/".
	Root string
	// Roles are the roles whose daemons get settings.
	Roles  role.Set
	Config config.Effective
	Store  Secrets
	// Member asks the instance which member of etcd it is. It returns "" and why if the instance does not know.
	Member func(ctx context.Context) (name, why string, err error)
	// Masters waits until the cluster has masters; nil asks the store at once. Until then nobody needs what a minion reads,
	// and the masters need every read that the store has.
	Masters func(ctx context.Context) error
	// Patience bounds the wait for the store; 0 tries once, and Forever waits without limit, whatever the error is.
	Patience time.Duration
	// Status receives texts about what is missing; may be nil.
	Status func(string)
	// Log may be nil.
	Log *slog.Logger
}

// Learn reads the cluster's own facts from the store, compares them with the machine's configuration, and writes the
// settings that the machine's daemons need. Nothing is minted, and so no daemon starts, before it succeeds.
func Learn(ctx context.Context, o LearnOptions) (config.Effective, error) {
	w := newWaiter(o.Patience, yields(o.Roles), o.Status, o.Log)
	if o.Masters != nil {
		if err := o.Masters(ctx); err != nil {
			return config.Effective{}, err
		}
	}
	var info machine.ClusterInfo
	err := w.retry(ctx, func() (err error) {
		info, err = readInfo(ctx, o)
		return o.retryAll(err)
	})
	if err != nil {
		return config.Effective{}, err
	}
	conf := o.Config
	if err := conf.Agree(info, pki.PublicInfo+" of "+o.Store.String()); err != nil {
		return config.Effective{}, err
	}
	if o.Roles.Has(role.Etcd) {
		if err := o.member(ctx, w, &conf); err != nil {
			return config.Effective{}, err
		}
	}
	if conf.CAFile == "" {
		err := w.retry(ctx, func() error { return o.retryAll(o.writeCA(ctx)) })
		if err != nil {
			return config.Effective{}, err
		}
	}
	return conf, o.write(conf, info)
}

// retryAll makes every error temporary for a caller that waits without limit: permissions, and the store itself, often
// appear a little later than the machines.
func (o LearnOptions) retryAll(err error) error {
	var may temporaryError
	if err == nil || o.Patience != Forever || errors.As(err, &may) {
		return err
	}
	return temporaryError{err}
}

func readInfo(ctx context.Context, o LearnOptions) (machine.ClusterInfo, error) {
	data, err := o.Store.Get(ctx, pki.PublicInfo)
	if errors.Is(err, pki.ErrNotFound) {
		return machine.ClusterInfo{}, &reason.Error{Reason: reason.Store, Err: err,
			Next: fmt.Sprintf("hardtack pki create --cluster %s --store %s creates missing objects (with -f CLUSTER.yaml if the cluster has a document)", o.Config.Cluster, o.Store)}
	}
	if err != nil {
		return machine.ClusterInfo{}, classified(err, o.Store)
	}
	info, err := machine.ParseInfo(pki.PublicInfo, data)
	if err != nil {
		return machine.ClusterInfo{}, &reason.Error{Reason: reason.Store, Err: fmt.Errorf("reading %s of %s: %w", pki.PublicInfo, o.Store, err),
			Next: "hardtack pki verify says what is wrong in the store"}
	}
	return info, nil
}

// member finds out which member of etcd this machine is. The instance is only asked where the role file does not say.
func (o LearnOptions) member(ctx context.Context, w *waiter, conf *config.Effective) error {
	if conf.Etcd.Member != "" || len(conf.Etcd.Members) == 0 || o.Member == nil {
		return conf.Member("", "this machine has no tags")
	}
	return w.retry(ctx, func() error {
		name, why, err := o.Member(ctx)
		if err != nil {
			return temporaryError{reason.With(reason.Metadata, err)}
		}
		return conf.Member(name, why)
	})
}

// writeCA writes the cluster's public CA. The store is asked as the instance, by TLS: who can change what it says can
// read the cluster's keys there too.
func (o LearnOptions) writeCA(ctx context.Context) error {
	data, err := o.Store.Get(ctx, pki.PublicKubernetes)
	if err != nil {
		return classified(err, o.Store)
	}
	certs, err := pki.ParseTrusted(data)
	if err != nil {
		return reason.Errorf(reason.Store, "%s of %s: %w", pki.PublicKubernetes, o.Store, err)
	}
	return o.writeFile(config.CAFile, string(pki.EncodeCertificates(certs)))
}

// write writes the files that daemons and other commands of the agent read. They exist before any certificate does.
func (o LearnOptions) write(conf config.Effective, info machine.ClusterInfo) error {
	cluster, e := conf.Cluster, conf.Etcd
	if o.Roles.Has(role.Etcd) && len(e.Members) > 0 {
		var b strings.Builder
		for _, s := range machine.EtcdSettings(cluster, e.Member, e.Members) {
			fmt.Fprintf(&b, "%s=%s\n", s.Variable(), s.Value)
		}
		if err := o.writeFile(EtcdEnvFile, b.String()); err != nil {
			return err
		}
	}
	if o.Roles.Has(role.Masters) && len(e.Members) > 0 {
		if err := o.writeFile(APIServerEnvFile, "ETCD_SERVERS=--etcd-servers="+machine.EtcdServers(cluster, e.Members)+"\n"); err != nil {
			return err
		}
	}
	data, err := info.Marshal()
	if err != nil {
		return err
	}
	return o.writeFile(config.InfoFile, string(data))
}

// writeFile writes a file that every user may read.
func (o LearnOptions) writeFile(name, content string) error {
	name = filepath.Join("/", o.Root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("making the directory of %s: %w", name, err)
	}
	if _, err := file.Replace(name, []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
