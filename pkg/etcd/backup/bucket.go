package backup

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// bucket is a place in a bucket of S3, or of a service that speaks like it.
//
// It signs with the SDK's signer and sends with net/http: the SDK's own client of S3 would add 1.2 MB to the agent, which is on
// every machine, and of S3 it needs four calls. A snapshot is sent as one object, which S3 takes up to 5 GiB, with the SHA-256
// in the signed request: S3 refuses what arrives otherwise, so that nothing has to be read back. One object is also why
// If-None-Match is all that keeps two machines from the same name.
type bucket struct {
	at      machine.Backups
	options Options

	mu     sync.Mutex
	client *client // nil until it is first used
}

func newBucket(at machine.Backups, o Options) *bucket { return &bucket{at: at, options: o} }

// mostObject is what S3 takes as one object, in bytes.
const mostObject = 5 << 30

func (b *bucket) String() string { return b.at.String() }

// List implements Place.
func (b *bucket) List(ctx context.Context) ([]Object, error) { return list(ctx, b, b.options.Cluster) }

// Newest implements Place.
func (b *bucket) Newest(ctx context.Context, epoch int) (*Object, error) {
	return newest(ctx, b, b.options.Cluster, epoch)
}

// Put implements Place.
func (b *bucket) Put(ctx context.Context, o Object, file string) error { return put(ctx, b, o, file) }

// Open implements Place.
func (b *bucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return b.open(ctx, name)
}

// connect returns the client, and makes it when it is first needed.
func (b *bucket) connect(ctx context.Context) (*client, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.client != nil {
		return b.client, nil
	}
	conf, err := b.options.Load(ctx)
	if err != nil {
		return nil, err
	}
	account := ""
	if strings.Contains(b.at.Bucket, machine.BackupAccount) {
		if b.options.Account == nil {
			return nil, errors.New("nothing says which account " + machine.BackupAccount + " is")
		}
		if account, err = b.options.Account(ctx); err != nil {
			return nil, fmt.Errorf("asking for the number of the account: %w", err)
		}
	}
	b.client, err = newClient(b.at.In(account, conf.Region), conf, b.options.HTTP)
	return b.client, err
}

// do sends a request to the bucket, to the key of an object or to the bucket itself. The error says what was done.
func (b *bucket) do(ctx context.Context, doing, name string, r request) (*http.Response, error) {
	c, err := b.connect(ctx)
	if err == nil {
		var out *http.Response
		if r.path = name; name != "" && b.at.Prefix != "" {
			r.path = b.at.Prefix + "/" + name
		}
		if out, err = c.send(ctx, r); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%s %s in %s: %w", doing, cmp.Or(name, "the backups"), b, explain(err, r.needs))
}

// explain maps an answer of S3 to one of the package's errors.
func explain(err error, needs string) error {
	var a *answerError
	if !errors.As(err, &a) {
		return err
	}
	switch {
	case a.Code == "NoSuchKey":
		return fmt.Errorf("%w (%w)", ErrNotFound, err)
	case a.Code == "PreconditionFailed":
		return fmt.Errorf("%w (%w)", ErrExists, err)
	case a.Code == "NoSuchBucket":
		return fmt.Errorf("%w (%w): hardtack stack apply makes the cluster's own bucket", ErrNoBucket, err)
	case awserr.KindOf(err) == awserr.Denied:
		return fmt.Errorf("%w (%w)", ErrForbidden, awserr.Explain(err, needs))
	}
	return awserr.Explain(err, needs)
}

func (b *bucket) open(ctx context.Context, name string) (io.ReadCloser, error) {
	out, err := b.do(ctx, "reading", name, request{method: http.MethodGet, needs: "s3:GetObject"})
	if err != nil {
		return nil, err
	}
	return out.Body, nil
}

// names implements shelf.
func (b *bucket) names(ctx context.Context, prefix string) ([]string, error) {
	top := ""
	if b.at.Prefix != "" {
		top = b.at.Prefix + "/"
	}
	var names []string
	for token := ""; ; {
		query := url.Values{"list-type": {"2"}, "prefix": {top + prefix}}
		if token != "" {
			query.Set("continuation-token", token)
		}
		var page struct {
			IsTruncated           bool
			NextContinuationToken string
			Contents              []struct{ Key string }
		}
		if err := b.read(ctx, request{method: http.MethodGet, query: query, needs: "s3:ListBucket"}, &page); err != nil {
			return nil, err
		}
		for _, c := range page.Contents {
			names = append(names, strings.TrimPrefix(c.Key, top))
		}
		if !page.IsTruncated {
			return names, nil
		}
		if token == page.NextContinuationToken {
			return nil, fmt.Errorf("listing the backups in %s: the answer says that there is more, and not where", b)
		}
		token = page.NextContinuationToken
	}
}

// read sends a request to the bucket and decodes the answer.
func (b *bucket) read(ctx context.Context, r request, into any) error {
	out, err := b.do(ctx, "listing", "", r)
	if err != nil {
		return err
	}
	defer func() { _ = out.Body.Close() }() // read to its end, or abandoned
	if err := xml.NewDecoder(out.Body).Decode(into); err != nil {
		return fmt.Errorf("listing the backups in %s: %w", b, err)
	}
	return nil
}

// put implements shelf.
func (b *bucket) put(ctx context.Context, name string, from content) error {
	if from.size > mostObject {
		return fmt.Errorf("storing %s in %s: it has %d bytes, and S3 takes one object of at most %d: make the database smaller (hardtack etcd defrag)", name, b, from.size, int64(mostObject))
	}
	sum, err := hex.DecodeString(from.sha256)
	if err != nil {
		return fmt.Errorf("storing %s in %s: its SHA-256: %w", name, b, err)
	}
	checksum := base64.StdEncoding.EncodeToString(sum)
	out, err := b.do(ctx, "storing", name, request{
		method: http.MethodPut, body: &from, needs: "s3:PutObject",
		header: http.Header{"If-None-Match": {"*"}, "X-Amz-Checksum-Sha256": {checksum}},
	})
	var unclear *unclearError
	if errors.As(err, &unclear) && errors.Is(err, ErrExists) {
		// The answer to an attempt was lost: what is there may be this very object.
		return b.same(ctx, name, checksum, err)
	}
	if err != nil {
		return err
	}
	return out.Body.Close()
}

// same returns nil if an object has the content with a checksum, and err if not.
func (b *bucket) same(ctx context.Context, name, checksum string, err error) error {
	out, asked := b.do(ctx, "comparing", name, request{method: http.MethodHead, needs: "s3:GetObject", header: http.Header{"X-Amz-Checksum-Mode": {"ENABLED"}}})
	if asked != nil {
		return errors.Join(err, asked)
	}
	if out.Header.Get("X-Amz-Checksum-Sha256") == checksum {
		err = nil
	}
	return errors.Join(err, out.Body.Close())
}
