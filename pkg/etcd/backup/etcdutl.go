package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

// The image's own etcdutl does the work: it is of the version of the image's etcd, and as a library it would more than
// double the agent.

// bump is how many revisions a restored database is ahead of its backup, far more than are written between two backups.
// Every watch from before then ends: what was acknowledged after the backup had revisions that now mean something else.
const bump = 1_000_000_000

// contents are what etcdutl says about a database.
type contents struct {
	Revision int64 `json:"revision"`
	TotalKey int64 `json:"totalKey"`
}

// try restores a snapshot, which compares it with the digest at its end, and compares what came out with what went in. Not by
// etcdutl hashkv: in 3.6.14 that panics where a key has a lease ("no lessor to attach lease"), as every cluster's events have.
func (k *Keeper) try(ctx context.Context, file string) (contents, error) {
	const name, url = "trial", "http://127.0.0.1:1"
	var before, after contents
	if err := k.etcdutl(ctx, &before, "snapshot", "status", file); err != nil {
		return contents{}, err
	}
	dir := filepath.Join(k.Scratch, name)
	err := k.etcdutl(ctx, nil, "snapshot", "restore", file, "--data-dir="+dir, "--name="+name, "--initial-cluster="+name+"="+url, "--initial-advertise-peer-urls="+url)
	if err != nil {
		return contents{}, err
	}
	if err := k.etcdutl(ctx, &after, "snapshot", "status", database(dir)); err != nil {
		return contents{}, err
	}
	if before.Revision != after.Revision || before.TotalKey != after.TotalKey {
		return contents{}, fmt.Errorf("restored for a trial, the snapshot has other data: revision %d and %d keys, and %d and %d once restored",
			before.Revision, before.TotalKey, after.Revision, after.TotalKey)
	}
	return before, nil
}

// database is the file with the data in a data directory.
func database(dir string) string { return filepath.Join(dir, "member", "snap", "db") }

// etcdutl runs a command of etcdutl and decodes its answer, if into is not nil.
func (k *Keeper) etcdutl(ctx context.Context, into any, args ...string) error {
	out, err := run.Output(ctx, k.Program, append(args, "--write-out=json")...)
	if err == nil && into != nil {
		err = json.Unmarshal(out, into)
	}
	if err != nil {
		return fmt.Errorf("asking etcdutl: %w", err)
	}
	return nil
}

// rebuild makes a data directory for a member of an epoch that starts from a snapshot.
func (k *Keeper) rebuild(ctx context.Context, begin etcd.Begin, name, file, dir string) error {
	var cluster []string
	own := ""
	for _, p := range begin.Members {
		cluster = append(cluster, p.Name+"="+p.URL)
		if p.Name == name {
			own = p.URL
		}
	}
	err := k.etcdutl(ctx, nil, "snapshot", "restore", file, "--data-dir="+dir, "--name="+name, "--initial-cluster="+strings.Join(cluster, ","),
		"--initial-cluster-token="+begin.Token, "--initial-advertise-peer-urls="+own, "--bump-revision="+strconv.Itoa(bump), "--mark-compacted")
	if err != nil {
		return err
	}
	var got contents
	if err := k.etcdutl(ctx, &got, "snapshot", "status", database(dir)); err != nil {
		return err
	}
	if got.Revision < begin.Restore.Revision+bump {
		return fmt.Errorf("restored, it is at revision %d, and a backup of revision %d was expected to be at %d or later", got.Revision, begin.Restore.Revision, begin.Restore.Revision+bump)
	}
	return nil
}

// syncTree brings a directory and all in it to stable storage.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	})
}
