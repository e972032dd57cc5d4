package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	Hash     uint32 `json:"hash"`
	Revision int64  `json:"revision"`
	TotalKey int64  `json:"totalKey"`
}

// hashed is etcd's hash over all keys and their revisions up to one revision, the same on every member.
type hashed struct {
	Hash            uint32 `json:"hash"`
	HashRevision    int64  `json:"hashRevision"`
	CompactRevision int64  `json:"compactRevision"`
}

// try restores a snapshot and compares what came out with what went in.
func (k *Keeper) try(ctx context.Context, file string) (contents, error) {
	const name, url = "trial", "http://127.0.0.1:1"
	var before, after contents
	err := k.etcdutl(ctx, &before, "snapshot", "status", file)
	if err != nil {
		return contents{}, err
	}
	hash, err := k.hashOfCopy(ctx, file)
	if err != nil {
		return contents{}, err
	}
	dir := filepath.Join(k.Scratch, name)
	err = k.etcdutl(ctx, nil, "snapshot", "restore", file, "--data-dir="+dir, "--name="+name, "--initial-cluster="+name+"="+url, "--initial-advertise-peer-urls="+url)
	if err != nil {
		return contents{}, err
	}
	if err := k.etcdutl(ctx, &after, "snapshot", "status", database(dir)); err != nil {
		return contents{}, err
	}
	var restored hashed
	if err := k.etcdutl(ctx, &restored, "hashkv", database(dir)); err != nil {
		return contents{}, err
	}
	if before.Revision != after.Revision || before.TotalKey != after.TotalKey || hash != restored {
		return contents{}, fmt.Errorf("restored for a trial, the snapshot has other data: revision %d, %d keys and hash %+v, and %d, %d and %+v once restored",
			before.Revision, before.TotalKey, hash, after.Revision, after.TotalKey, restored)
	}
	return before, nil
}

// hashOfCopy asks for the hash of a copy: etcdutl writes to the file that it hashes.
func (k *Keeper) hashOfCopy(ctx context.Context, file string) (h hashed, err error) {
	copied := filepath.Join(k.Scratch, "copy.db")
	if err := copyFile(copied, file); err != nil {
		return h, fmt.Errorf("copying the snapshot: %w", err)
	}
	err = k.etcdutl(ctx, &h, "hashkv", copied)
	return h, errors.Join(err, os.Remove(copied))
}

func copyFile(to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = io.Copy(out, in)
		err = errors.Join(err, out.Close())
	}
	return errors.Join(err, in.Close())
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
