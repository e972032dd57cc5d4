// Package publish writes the documents of a cluster's issuer to where everybody reads them, and reads them as everybody does.
//
// Its rule: what is already as it should be is not written again, and keys are written before what points at them.
package publish

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

// Place is where documents are written.
type Place interface {
	fmt.Stringer
	// Write writes the documents in their order, and returns the paths of those that were not there or different.
	Write(ctx context.Context, documents []issuer.Document) (changed []string, err error)
}

// Open returns the place of a location: dir:/PATH, or s3://BUCKET/PREFIX with ?region= and ?endpoint=. load gives the configuration
// of AWS, and is called for buckets only.
func Open(ctx context.Context, location string, load func(context.Context) (aws.Config, error)) (Place, error) {
	at, err := machine.ParseBackups(location)
	if err != nil {
		return nil, err
	}
	if at.Kind == machine.BackupsDir {
		return directory{at.Path}, nil
	}
	if at.Bucket != at.In("", "").Bucket {
		return nil, fmt.Errorf("%s: the URL of an issuer has its bucket's whole name: write it here too", location)
	}
	conf, err := load(ctx)
	if err != nil {
		return nil, err
	}
	return newBucket(at, conf), nil
}

// Issuer is a cluster's issuer, which authority.RotateOptions takes.
type Issuer struct {
	// URL is what tokens name as their issuer.
	URL string
	// Place is where its documents are written; nil if that is done by others, who are told by the errors of Check.
	Place Place
	// Client reads what is published; nil is Reader.
	Client *http.Client
}

// String returns the issuer's URL.
func (i Issuer) String() string { return i.URL }

// Publish publishes public keys, in PEM. Without a place it does nothing.
func (i Issuer) Publish(ctx context.Context, public []byte) error {
	_, err := i.Write(ctx, public)
	return err
}

// Write is Publish, and returns the paths of the documents that it has changed.
func (i Issuer) Write(ctx context.Context, public []byte) ([]string, error) {
	if i.Place == nil {
		return nil, nil
	}
	keys, err := pki.ParsePublic(public)
	if err != nil {
		return nil, err
	}
	documents, err := issuer.Documents(i.URL, keys)
	if err != nil {
		return nil, err
	}
	return i.Place.Write(ctx, documents)
}

// Check reads the documents by the issuer's URL, and fails unless they are of this issuer with just these public keys. The error is an
// *UnverifiableError where they could be read.
func (i Issuer) Check(ctx context.Context, public []byte) error {
	keys, err := pki.ParsePublic(public)
	if err != nil {
		return err
	}
	found, err := i.read(ctx)
	if err != nil {
		return fmt.Errorf("reading what %s publishes, as everybody can: %w", i.URL, err)
	}
	return problems(i.URL, found, keys)
}

func problems(url string, found issuer.Published, keys []*ecdsa.PublicKey) error {
	if list := found.Check(url, keys); len(list) > 0 {
		return &UnverifiableError{URL: url, Problems: list}
	}
	return nil
}

// UnverifiableError says what is wrong with what an issuer publishes.
type UnverifiableError struct {
	URL      string
	Problems []string
}

func (e *UnverifiableError) Error() string {
	return e.URL + " publishes other keys than the cluster's: " + strings.Join(e.Problems, "; ")
}

// mostPublished is more than any document of an issuer has, in bytes.
const mostPublished = 1 << 20

// readTime bounds one request: STS waits no longer.
const readTime = 10 * time.Second

// Reader is a client that reads as STS does: over TLS with a certificate of an authority that is known to all, and to no other host than
// is named.
func Reader() *http.Client {
	return &http.Client{Timeout: readTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (i Issuer) read(ctx context.Context) (found issuer.Published, err error) {
	data, err := i.get(ctx, issuer.ConfigurationURL(i.URL))
	if err != nil {
		return found, err
	}
	if found, err = issuer.ParseConfiguration(data); err != nil {
		return found, err
	}
	if !strings.HasPrefix(found.KeysURL, "https://") {
		return found, nil // the check says so
	}
	if data, err = i.get(ctx, found.KeysURL); err != nil {
		return found, err
	}
	found.Keys, err = issuer.ParseKeys(data)
	return found, err
}

func (i Issuer) get(ctx context.Context, address string) (data []byte, err error) {
	client := i.Client
	if client == nil {
		client = Reader()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Cache-Control", "no-cache")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: everybody must be allowed to read it", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, mostPublished))
}
