package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// shelf is what a kind of place can do by itself: objects by name.
type shelf interface {
	open(ctx context.Context, name string) (io.ReadCloser, error)
	// names lists the objects below a prefix that ends with a slash, in no particular order.
	names(ctx context.Context, prefix string) ([]string, error)
	// put creates an object. Its error matches ErrExists if there is one.
	put(ctx context.Context, name string, from content) error
	String() string
}

// content is what an object is to have.
type content struct {
	// open returns it from its beginning, as often as it is sent.
	open   func() (io.ReadCloser, error)
	size   int64
	sha256 string
}

const (
	snapshotEnd = ".db"
	// describedEnd is added to the snapshot's name.
	describedEnd = ".json"
	// timeForm is the time in a name, to the second: in it names are ordered as the times are.
	timeForm = "20060102T150405Z"
	// most is the size of a description that is read, in bytes.
	most = 64 << 10
	// atOnce is how many descriptions are read at once.
	atOnce = 16
)

// Name is the name of a backup.
func Name(cluster string, epoch int, taken time.Time, revision int64) string {
	return fmt.Sprintf("%s/%d/%s-%d%s", cluster, epoch, taken.UTC().Format(timeForm), revision, snapshotEnd)
}

// named is what a name says.
type named struct {
	name     string
	epoch    int
	taken    time.Time
	revision int64
}

// parseName reads what Name has written.
func parseName(name string) (n named, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return n, false
	}
	base, isSnapshot := strings.CutSuffix(parts[2], snapshotEnd)
	at, revision, _ := strings.Cut(base, "-")
	var errs [3]error
	n.name = name
	n.epoch, errs[0] = strconv.Atoi(parts[1])
	n.taken, errs[1] = time.Parse(timeForm, at)
	n.revision, errs[2] = strconv.ParseInt(revision, 10, 64)
	return n, isSnapshot && errors.Join(errs[:]...) == nil && Name(parts[0], n.epoch, n.taken, n.revision) == name
}

func checkName(name string) error {
	if _, ok := parseName(name); !ok {
		return fmt.Errorf("%q is not the name of a backup, <cluster>/<epoch>/<time>-<revision>%s: %w", name, snapshotEnd, ErrNotFound)
	}
	return nil
}

// described are the backups among names, the newest first: snapshots that have their description.
func described(names []string) []named {
	snapshots := map[string]bool{}
	for _, name := range names {
		snapshots[name] = true
	}
	var out []named
	for _, name := range names {
		snapshot, ok := strings.CutSuffix(name, describedEnd)
		if n, parsed := parseName(snapshot); ok && parsed && snapshots[snapshot] {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b named) int {
		return cmp.Or(b.taken.Compare(a.taken), cmp.Compare(b.epoch, a.epoch), cmp.Compare(b.revision, a.revision))
	})
	return out
}

// prefix is the beginning of the names of a cluster's backups, of one epoch or, for 0, of all.
func prefix(cluster string, epoch int) string {
	if epoch == 0 {
		return cluster + "/"
	}
	return fmt.Sprintf("%s/%d/", cluster, epoch)
}

// list returns all backups of a cluster.
func list(ctx context.Context, s shelf, cluster string) ([]Object, error) {
	names, err := s.names(ctx, prefix(cluster, 0))
	if err != nil {
		return nil, err
	}
	found := described(names)
	out := make([]Object, len(found))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, n := range found {
		group.Go(func() (err error) {
			if out[i], err = describe(ctx, s, n); errors.Is(err, member.ErrDamaged) {
				// It is listed, and of no cluster, so that nothing restores it; and it hides no other.
				out[i], err = Object{Name: n.name, Epoch: n.epoch, Taken: n.taken, Revision: n.revision}, nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(out, func(o Object) bool { return o.Name == "" }), nil
}

// newest returns the newest backup of an epoch, or of all.
func newest(ctx context.Context, s shelf, cluster string, epoch int) (*Object, error) {
	names, err := s.names(ctx, prefix(cluster, epoch))
	if err != nil {
		return nil, err
	}
	for _, n := range described(names) {
		if o, err := describe(ctx, s, n); err != nil || o.Name != "" {
			return &o, err
		}
	}
	return nil, nil
}

// describe reads a backup's description. It is the zero value if that has gone since it was listed.
func describe(ctx context.Context, s shelf, n named) (o Object, err error) {
	in, err := s.open(ctx, n.name+describedEnd)
	if errors.Is(err, ErrNotFound) {
		return Object{}, nil
	}
	if err != nil {
		return Object{}, err
	}
	data, err := io.ReadAll(io.LimitReader(in, most))
	if err := errors.Join(err, in.Close()); err != nil {
		return Object{}, fmt.Errorf("reading %s in %s: %w", n.name+describedEnd, s, err)
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return Object{}, fmt.Errorf("reading %s in %s: %w (%w)", n.name+describedEnd, s, member.ErrDamaged, err)
	}
	if o.Name != n.name || o.Epoch != n.epoch || o.Revision != n.revision || len(o.SHA256) != 2*sha256.Size {
		return Object{}, fmt.Errorf("%s in %s does not describe the snapshot beside it: it was not written by Hardtack, or moved: %w", n.name+describedEnd, s, member.ErrDamaged)
	}
	return o, nil
}

// put stores a snapshot and then its description.
func put(ctx context.Context, s shelf, o Object, file string) error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	snapshot := content{open: func() (io.ReadCloser, error) { return os.Open(file) }, size: o.Size, sha256: o.SHA256}
	if err := s.put(ctx, o.Name, snapshot); err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("describing %s: %w", o.Name, err)
	}
	sum := sha256.Sum256(text)
	return s.put(ctx, o.Name+describedEnd, content{
		open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		size: int64(len(text)), sha256: hex.EncodeToString(sum[:]),
	})
}
