package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

// directory is a directory that a web server has at the issuer's URL.
type directory struct{ path string }

func (d directory) String() string { return machine.BackupsDir + ":" + d.path }

// Write writes files that everybody may read. Their content types are the web server's.
func (d directory) Write(_ context.Context, documents []issuer.Document) (changed []string, err error) {
	for _, one := range documents {
		name := filepath.Join(d.path, filepath.FromSlash(one.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return changed, fmt.Errorf("publishing %s: %w", one.Path, err)
		}
		is, err := file.Replace(name, one.Content, 0o644)
		if err != nil {
			return changed, fmt.Errorf("publishing %s: %w", one.Path, err)
		}
		if is {
			changed = append(changed, one.Path)
		}
	}
	return changed, nil
}

// fresh is how long whoever keeps a document need not ask again: a new key waits for hours before it signs.
const fresh = "public, max-age=300"

// bucket is a bucket of S3, or of what speaks like it.
type bucket struct {
	at     machine.Backups
	client *s3.Client
}

func newBucket(at machine.Backups, conf aws.Config) bucket {
	return bucket{at, s3.NewFromConfig(conf, func(o *s3.Options) {
		if at.Region != "" {
			o.Region = at.Region
		}
		if at.Endpoint != "" {
			o.BaseEndpoint = &at.Endpoint
		}
		// A service at an address of its own has no host name for each bucket.
		o.UsePathStyle = o.BaseEndpoint != nil
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})}
}

func (b bucket) String() string { return b.at.String() }

// Write puts the documents that are not there, or different. Who may read them is the bucket's policy to say.
func (b bucket) Write(ctx context.Context, documents []issuer.Document) (changed []string, err error) {
	for _, one := range documents {
		key := one.Path
		if b.at.Prefix != "" {
			key = b.at.Prefix + "/" + key
		}
		same, err := b.has(ctx, key, one)
		if err == nil && !same {
			err = b.put(ctx, key, one)
			changed = append(changed, one.Path)
		}
		if err != nil {
			return changed, fmt.Errorf("publishing %s in %s: %w", one.Path, b, err)
		}
	}
	return changed, nil
}

// has reports whether a document is there with its content and type.
func (b bucket) has(ctx context.Context, key string, one issuer.Document) (same bool, err error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.at.Bucket, Key: &key})
	var missing *types.NoSuchKey
	switch {
	case errors.As(err, &missing), awserr.KindOf(err) == awserr.Denied:
		return false, nil // whoever may not list is not told that there is none, and learns at the write what is not allowed
	case err != nil:
		return false, awserr.Explain(err, "s3:GetObject")
	}
	defer func() { err = errors.Join(err, out.Body.Close()) }()
	have, err := io.ReadAll(io.LimitReader(out.Body, mostPublished))
	return bytes.Equal(have, one.Content) && aws.ToString(out.ContentType) == one.Type, err
}

func (b bucket) put(ctx context.Context, key string, one issuer.Document) error {
	sum := sha256.Sum256(one.Content)
	_, err := b.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.at.Bucket, Key: &key, Body: bytes.NewReader(one.Content), ContentType: aws.String(one.Type), CacheControl: aws.String(fresh),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	})
	return awserr.Explain(err, "s3:PutObject")
}
