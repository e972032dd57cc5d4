package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/core/snapshots/storage"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	bolt "go.etcd.io/bbolt"
)

// The directories that containerd gives its plugins in its root directory, by type and name.
const (
	metadataDir = "io.containerd.metadata.v1.bolt"
	contentDir  = "io.containerd.content.v1.content"
	snapshotDir = "io.containerd.snapshotter.v1." + snapshotter
	// kubernetes is the namespace of the CRI plugin.
	kubernetes = "k8s.io"
)

// write writes the databases and blobs below dir, and returns the links of snapshots to the images' files, by their paths below dir.
func write(ctx context.Context, dir string, list []unpacked) (links map[string]string, err error) {
	s, err := open(ctx, dir)
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, kubernetes)
	links = map[string]string{}
	for _, u := range list {
		if err = s.add(ctx, u, links); err != nil {
			break
		}
	}
	if err = errors.Join(err, s.close()); err != nil {
		return nil, err
	}
	for _, name := range []string{metadataDir + "/meta.db", snapshotDir + "/metadata.db"} {
		if err := timeless(filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return links, os.RemoveAll(filepath.Join(dir, contentDir, "ingest"))
}

// store is containerd's databases, as containerd opens them.
type store struct {
	file *bolt.DB
	*metadata.DB
	snapshots *database
}

func open(ctx context.Context, dir string) (*store, error) {
	for _, name := range []string{metadataDir, snapshotDir} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	// It warns of each file system without fs-verity, which is every one of a build.
	if err := log.SetLevel("error"); err != nil {
		return nil, err
	}
	blobs, err := local.NewStore(filepath.Join(dir, contentDir))
	if err != nil {
		return nil, err
	}
	meta, err := storage.NewMetaStore(filepath.Join(dir, snapshotDir, "metadata.db"))
	if err != nil {
		return nil, err
	}
	s := &store{snapshots: &database{store: meta}}
	if s.file, err = bolt.Open(filepath.Join(dir, metadataDir, "meta.db"), 0o600, nil); err != nil {
		return nil, err
	}
	s.DB = metadata.NewDB(s.file, blobs, map[string]snapshots.Snapshotter{snapshotter: s.snapshots})
	if err := s.Init(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *store) close() error { return errors.Join(s.file.Close(), s.snapshots.store.Close()) }

// add adds an image: its blobs but the layers, one snapshot with all its files, and its name.
func (s *store) add(ctx context.Context, u unpacked, links map[string]string) error {
	manifest, err := u.Manifest()
	if err != nil {
		return err
	}
	hashes := slices.SortedFunc(maps.Keys(u.Blobs), func(a, b v1.Hash) int { return strings.Compare(a.Hex, b.Hex) })
	for _, hash := range hashes {
		text := u.Blobs[hash]
		labels := map[string]string{}
		if hash == manifest.Config.Digest {
			// What keeps the snapshot, as the unpacker of containerd labels it.
			labels["containerd.io/gc.ref.snapshot."+snapshotter] = u.chain.String()
		} else if labels, err = children(u.Blobs, text); err != nil {
			return err
		}
		d := ocispec.Descriptor{Digest: digest.Digest(hash.String()), Size: int64(len(text))}
		err := content.WriteBlob(ctx, s.ContentStore(), hash.String(), bytes.NewReader(text), d, content.WithLabels(labels))
		if err != nil {
			return err
		}
	}
	if err := s.snapshot(ctx, u, links); err != nil {
		return err
	}
	_, err = metadata.NewImageStore(s.DB).Create(ctx, images.Image{
		Name: u.Name, Target: descriptor(u.Target),
		// The kubelet removes no image that is pinned.
		Labels: map[string]string{"io.cri-containerd.pinned": "pinned"},
	})
	return err
}

// children are the labels by which containerd's garbage collector finds from an index its manifests, and from a manifest its configuration.
func children(blobs map[v1.Hash][]byte, text []byte) (map[string]string, error) {
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	for i, d := range append(index.Manifests, manifest.Config) {
		if blobs[d.Digest] == nil {
			continue
		}
		for _, key := range images.ChildGCLabels(descriptor(d)) {
			if strings.HasSuffix(key, ".") {
				key += strconv.Itoa(i)
			}
			labels[key] = d.Digest.String()
		}
	}
	return labels, nil
}

func descriptor(d v1.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size}
}

// snapshot makes the committed snapshot of an image, unless another image has the same files.
func (s *store) snapshot(ctx context.Context, u unpacked, links map[string]string) error {
	sn, key := s.Snapshotter(snapshotter), "unpack "+u.chain.String()
	if _, err := sn.Stat(ctx, u.chain.String()); !errdefs.IsNotFound(err) {
		return err
	}
	s.snapshots.usage = snapshots.Usage{}
	for _, f := range u.files {
		s.snapshots.usage.Add(snapshots.Usage{Inodes: 1, Size: f.Size})
	}
	if _, err := sn.Prepare(ctx, key, ""); err != nil {
		return err
	}
	if err := sn.Commit(ctx, u.chain.String(), key); err != nil {
		return err
	}
	links[path.Join(snapshotDir, "snapshots", s.snapshots.id, "fs")] = u.dir
	return nil
}

// database is the part of the overlay snapshotter that is in its database. Its other methods are not called and not there.
type database struct {
	snapshots.Snapshotter
	store *storage.MetaStore
	// usage is that of the next snapshot, id that of the last one.
	usage snapshots.Usage
	id    string
}

// Stat returns a snapshot's information.
func (d *database) Stat(ctx context.Context, key string) (info snapshots.Info, err error) {
	err = d.store.WithTransaction(ctx, false, func(ctx context.Context) error {
		_, info, _, err = storage.GetInfo(ctx, key)
		return err
	})
	return info, err
}

// Prepare begins a snapshot. There is nothing to mount.
func (d *database) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	return nil, d.store.WithTransaction(ctx, true, func(ctx context.Context) error {
		s, err := storage.CreateSnapshot(ctx, snapshots.KindActive, key, parent, opts...)
		d.id = s.ID
		return err
	})
}

// Commit ends a snapshot.
func (d *database) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	return d.store.WithTransaction(ctx, true, func(ctx context.Context) error {
		_, err := storage.CommitActive(ctx, key, name, d.usage, opts...)
		return err
	})
}

// timeless rewrites a database so that its bytes depend on nothing but its content, and its times are the epoch.
func timeless(name string) error {
	epoch, err := time.Unix(0, 0).UTC().MarshalBinary()
	if err != nil {
		return err
	}
	from, err := bolt.Open(name, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	// The page of amd64 and arm64's smallest, whatever machine writes it; containerd reads it from the file.
	to, err := bolt.Open(name+".new", 0o600, &bolt.Options{PageSize: 4096, NoSync: true})
	if err != nil {
		return errors.Join(err, from.Close())
	}
	err = from.View(func(old *bolt.Tx) error {
		return old.ForEach(func(key []byte, b *bolt.Bucket) error { return copyBucket(b, to, [][]byte{key}, epoch) })
	})
	if err := errors.Join(err, from.Close(), to.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// copyBucket copies a bucket to its path in another database. Each bucket is a transaction of its own: of two in one, which gets the lower
// page is left to the order of a map.
func copyBucket(from *bolt.Bucket, to *bolt.DB, at [][]byte, epoch []byte) error {
	var inner [][]byte
	err := to.Update(func(tx *bolt.Tx) error {
		made, err := tx.CreateBucketIfNotExists(at[0])
		for _, key := range at[1:] {
			if err == nil {
				made, err = made.CreateBucketIfNotExists(key)
			}
		}
		if err != nil {
			return err
		}
		if err := made.SetSequence(from.Sequence()); err != nil {
			return err
		}
		return from.ForEach(func(key, value []byte) error {
			if value == nil && from.Bucket(key) != nil {
				inner = append(inner, key)
				return nil
			}
			if name := string(key); name == "createdat" || name == "updatedat" {
				value = epoch
			}
			return made.Put(key, value)
		})
	})
	for _, key := range inner {
		if err == nil {
			err = copyBucket(from.Bucket(key), to, append(slices.Clone(at), key), epoch)
		}
	}
	return err
}
