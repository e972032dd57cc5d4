package spec_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

const clusterHead = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"

// TestStorage: where a member's data are follows from the store, the disks or the document, and its role file says so.
func TestStorage(t *testing.T) {
	const named = "groups: [{name: control, roles: [masters, etcd], members: [a, b, c]}]\n"
	const disks = "etcd: {disks: {a: /dev/disk/by-id/nvme-1, b: /dev/disk/by-id/nvme-2, c: /dev/disk/by-id/ata-3}}\n"
	for name, tt := range map[string]struct {
		text, group string
		want        machine.Etcd
		lines       string
	}{
		"AWS": {"", "masters", machine.Etcd{Member: "a", Storage: "volume", Backup: "stack"}, "ETCD_BACKUP=stack\nETCD_STORAGE=volume\n"},
		"AWS, named": {named, "control-b", machine.Etcd{Members: []string{"a", "b", "c"}, Member: "b", Storage: "volume", Backup: "stack"},
			"ETCD_BACKUP=stack\nETCD_STORAGE=volume\n"},
		"AWS, as before":  {"etcd: {storage: machine, backup: {to: none}}\n", "masters", machine.Etcd{Member: "a", Storage: "machine"}, ""},
		"without a cloud": {"store: dir:/s\n", "masters", machine.Etcd{Member: "a", Storage: "machine"}, "ETCD_MEMBER=a\n"},
		"a disk": {"store: dir:/s\netcd: {disks: {a: /dev/disk/by-id/nvme-1}}\n", "masters",
			machine.Etcd{Member: "a", Storage: "disk", Disk: "/dev/disk/by-id/nvme-1"}, "ETCD_DISK=/dev/disk/by-id/nvme-1\nETCD_MEMBER=a\nETCD_STORAGE=disk\n"},
		"a disk for each": {"store: dir:/s\n" + named + disks, "control-c",
			machine.Etcd{Members: []string{"a", "b", "c"}, Member: "c", Storage: "disk", Disk: "/dev/disk/by-id/ata-3"}, "ETCD_DISK=/dev/disk/by-id/ata-3\nETCD_MEMBER=c\nETCD_STORAGE=disk\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c := complete(t, clusterHead+tt.text)
			g, err := c.Group(tt.group)
			assert.NilError(t, err)
			assert.DeepEqual(t, c.Machine(g).Etcd, tt.want)
			assert.Equal(t, c.Volume(g), tt.want.Storage == machine.StorageVolume)
			files, err := c.Files(g.Name, nil)
			assert.NilError(t, err)
			last := string(files[len(files)-1].Content)
			got := strings.ReplaceAll(strings.TrimPrefix(last, "CLUSTER_NAME=demo\n"), "STORE=dir:/s\n", "")
			assert.Equal(t, got, tt.lines)
		})
	}
}

// TestStorageFindings: a document whose members would have no data, or lose them, is refused.
func TestStorageFindings(t *testing.T) {
	for text, want := range map[string]string{
		"store: dir:/s\netcd: {storage: volume}\n":                                      "the machines are in no cloud that has volumes (name a disk of each member in etcd.disks, or write machine)",
		"store: dir:/s\netcd: {storage: disk}\n":                                        `etcd.disks: member "a" has none (ls /dev/disk/by-id`,
		"store: dir:/s\netcd: {storage: machine, disks: {a: /dev/disk/by-id/x}}\n":      "are not used: etcd.storage is machine",
		"etcd: {disks: {a: /dev/disk/by-id/x}}\n":                                       "are not used: etcd.storage is volume",
		"etcd: {flags: {quota-backend-bytes: 8589934592}}\n":                            "etcd.size: 20 GiB are too small for a database of 8589934592 bytes",
		"etcd: {flags: {quota-backend-bytes: 8589934592}, size: 24}\n":                  "(write 25 or more)",
		"etcd: {size: 6, flags: {quota-backend-bytes: 0}}\n":                            "a database of 2147483648 bytes",
		"etcd: {iops: 16000}\n":                                                         "16000 are more than a volume of 20 GiB carries, 10000",
		"etcd: {throughput: 1000}\n":                                                    "1000 MiB a second are more than 3000 operations a second carry, 750",
		"store: dir:/s\netcd: {disks: {a: /dev/disk/by-id/x, aa: /dev/disk/by-id/y}}\n": `"aa" is no member of etcd: they are a`,
		"store: dir:/s\netcd: {disks: {a: /dev/nvme1n1}}\n":                             `etcd.disks.a: "/dev/nvme1n1" is not a path below /dev/disk/by-id`,
		"store: dir:/s\netcd: {disks: {a: /dev/disk/by-id/../sda}}\n":                   `is not a path below /dev/disk/by-id`,
	} {
		err := findings(t, clusterHead+text).Err()
		assert.Assert(t, err != nil && strings.Contains(err.Error(), want), "%s gives %v, want %q", text, err, want)
	}
	if found := findings(t, clusterHead+"etcd: {flags: {quota-backend-bytes: lots}}\n"); len(found) != 1 || !strings.Contains(found[0].Text, `"lots" is no number of bytes`) {
		t.Error(found)
	}
	for _, text := range []string{
		"etcd: {flags: {quota-backend-bytes: 8589934592}, size: 25}\n", "etcd: {iops: 10000, throughput: 1000}\n",
		"store: dir:/s\netcd: {size: 1}\n", "etcd: {size: 1, storage: machine}\n",
	} {
		assert.NilError(t, findings(t, clusterHead+text).Err())
	}
}

// TestMembersOwnFlags: a document cannot make a member start, or be reached, otherwise than the agent and the records say.
func TestMembersOwnFlags(t *testing.T) {
	for _, head := range []string{clusterHead, machines} {
		for flag, want := range map[string]string{
			"initial-cluster": "decided on each machine", "initial-cluster-state": "decided on each machine", "initial-cluster-token": "decided on each machine",
			"data-dir": "decided on each machine", "wal-dir": "decided on each machine", "force-new-cluster": "decided on each machine", "discovery-srv": "decided on each machine",
			"initial-advertise-peer-urls": "follows from the members' names", "advertise-client-urls": "follows from the members' names",
			"listen-peer-urls": "follows from the members' names", "listen-client-urls": "follows from the members' names", "name": "follows from the members' names",
		} {
			err := findings(t, head+"etcd: {flags: {"+flag+": other}}\n").Err()
			assert.Assert(t, err != nil && strings.Contains(err.Error(), "etcd.flags."+flag+": --"+flag+" "), "%s: %v", flag, err)
			assert.Assert(t, strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "(leave it out)"), "%s: %v", flag, err)
		}
	}
	c := complete(t, clusterHead)
	e, err := c.Explain("etcd.flags.initial-cluster")
	assert.NilError(t, err)
	assert.Assert(t, len(e.Becomes) == 1 && strings.Contains(e.Becomes[0], "hardtack-member decides"), "%q", e.Becomes)
	// What complete prints is a document again, with these flags as they are.
	assert.NilError(t, findings(t, clusterHead+"etcd: {flags: {listen-peer-urls: 'https://127.0.0.1:2380', name: a}}\n").Err())
}

// TestUpkeep: what the image says of etcd's upkeep has its reason, and explain shows it.
func TestUpkeep(t *testing.T) {
	c := complete(t, clusterHead)
	for flag, want := range map[string]string{
		"quota-backend-bytes":                  "at the limit every write is refused",
		"feature-gates":                        "compares its data with the others'",
		"bootstrap-defrag-threshold-megabytes": "gives space back",
		"auto-compaction-retention":            "the API server compacts every 5 minutes",
	} {
		e, err := c.Explain("etcd.flags." + flag)
		assert.NilError(t, err)
		assert.Assert(t, strings.Contains(e.Why, want), "%s: %q", flag, e.Why)
		assert.Assert(t, strings.Contains(e.Origin.From, "/etc/kubernetes/etcd"), "%s: %v", flag, e.Origin)
	}
	for path, want := range map[string]string{"etcd.storage": "where the data of a member are", "etcd.size": "GiB", "etcd": "the overrides"} {
		e, err := c.Explain(path)
		assert.NilError(t, err)
		assert.Assert(t, strings.Contains(e.What, want), "%s: %q", path, e.What)
	}
}
