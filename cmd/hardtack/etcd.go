package main

import (
	"cmp"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

func etcdCommand() *cli.Command {
	return &cli.Command{
		Name:  "etcd",
		Usage: "look at a cluster's etcd and act on it through its store and EC2, without a way to its machines",
		Subcommands: []*cli.Command{
			etcdStatusCommand(),
			etcdMembersCommand(),
			etcdReplaceCommand(),
			etcdBackupCommand(),
			etcdRestoreCommand(),
			etcdAdoptCommand(),
			etcdRemoveCommand(),
			etcdMoveCommand(),
			etcdDefragCommand(),
		},
	}
}

// etcdFlags select the cluster of a command.
func etcdFlags(more ...cli.Flag) []cli.Flag {
	return append(append(awsFlags(),
		clusterFlag(),
		&cli.StringFlag{Name: "store", Usage: "the store's `LOCATION`: ssm:/path or dir:PATH (default: the document's)"},
	), more...)
}

// openEtcd returns the etcd of etcdFlags, and its document.
func openEtcd(c *cli.Context) (*operate.Cluster, *spec.Complete, error) {
	complete, err := readCluster(c)
	if err != nil {
		return nil, nil, err
	}
	at, err := parseStore(cmp.Or(c.String("store"), complete.Cluster.Store))
	if err != nil {
		return nil, nil, err
	}
	records, err := openLocation(c, at)
	if err != nil {
		return nil, nil, err
	}
	k := &operate.Cluster{Name: complete.Cluster.Name, Storage: complete.Cluster.Etcd.Storage, Records: records, Clock: clock.System{}}
	named := complete.Info().Etcd.Members
	for _, g := range complete.Groups {
		if g.Member != "" {
			k.Members = append(k.Members, g.Member)
			k.Peers = append(k.Peers, etcd.Peer{Name: g.Member, URL: machine.EtcdPeerURL(k.Name, g.Member, named)})
		}
	}
	if at.Kind == store.KindSSM {
		conf, err := loadAWS(c.Context, c)
		if err != nil {
			return nil, nil, err
		}
		k.Cloud = cloud.New(conf, k.Name)
	}
	return k, complete, nil
}
