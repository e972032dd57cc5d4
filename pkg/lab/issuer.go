package lab

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/publish"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// publishIssuer does for an issuer in a bucket what its user does on AWS: it makes the bucket, lets everybody read the two documents,
// and publishes the keys, so that the region's STS gives pods their roles. An issuer that is elsewhere stays unpublished: the lab
// asks nobody outside.
func (r *region) publishIssuer(ctx context.Context) error {
	record := issuer.Record{Issuer: r.plan.PublicIssuer(), To: r.plan.Cluster.ServiceAccounts.PublishTo}
	if record.Issuer == "" {
		return nil
	}
	bucket, prefix, ok := bucketOfLab(record.To)
	if !ok {
		r.log.Warn("pods get no roles at AWS: the lab has the buckets of one region only, and the keys of the issuer are elsewhere; next: name an issuer below https://BUCKET.s3."+regionName+".amazonaws.com",
			"issuer", record.Issuer, "publishTo", record.To)
		return nil
	}
	if err := r.publicBucket(bucket, prefix); err != nil {
		return fmt.Errorf("making the bucket %s of the issuer %s: %w", bucket, record.Issuer, err)
	}
	place, err := publish.Open(ctx, record.To, func(context.Context) (aws.Config, error) { return r.owner, nil })
	if err != nil {
		return err
	}
	public, err := r.secrets().Get(ctx, pki.ServiceAccount+pki.Pub)
	if err != nil {
		return err
	}
	if err := (publish.Issuer{URL: record.Issuer, Place: place}).Publish(ctx, public); err != nil {
		return err
	}
	return authority.RecordIssuer(ctx, r.secrets(), record)
}

// bucketOfLab is the bucket of a place where keys are published, and the prefix of their names there, if it is one of the lab's
// region.
func bucketOfLab(to string) (bucket, prefix string, ok bool) {
	if to == spec.PublishNone {
		return "", "", false
	}
	at, err := machine.ParseBackups(to)
	if err != nil || at.Kind != machine.BackupsS3 || at.Endpoint != "" || at.Region != "" && at.Region != regionName {
		return "", "", false
	}
	if at.Prefix != "" {
		prefix = at.Prefix + "/"
	}
	return at.Bucket, prefix, true
}

// publicBucket makes a bucket of which everybody may read an issuer's two documents, and nothing else.
func (r *region) publicBucket(name, prefix string) error {
	if err := r.account.S3().Create(awsfake.Bucket{Name: name}); err != nil {
		return err
	}
	arn := "arn:aws:s3:::" + name + "/" + prefix
	return r.account.S3().SetPolicy(name, fmt.Appendf(nil, `{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": [%q, %q]}]}`,
		arn+issuer.ConfigurationPath, arn+issuer.KeysPath))
}
