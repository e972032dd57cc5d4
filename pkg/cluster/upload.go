package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
)

// upload puts a template that no request carries into a bucket of the stack's region, and returns its address for CloudFormation, which
// reads it with the caller's permissions (s3:GetObject). The object is named by its content: the same template is the same object, however
// often it is applied or interrupted. It stays, as those of `aws cloudformation deploy --s3-bucket` do; nothing reads it afterwards.
func (c *Cluster) upload(ctx context.Context, bucket string, body []byte) (url string, err error) {
	sum := sha256.Sum256(body)
	key := "hardtack/" + c.stack + "/" + hex.EncodeToString(sum[:]) + ".template"
	client := s3.NewFromConfig(c.config.AWS, func(o *s3.Options) {
		// A service at an address of its own has no host name for each bucket.
		o.UsePathStyle = o.BaseEndpoint != nil
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	})
	_, err = client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(body), ContentType: aws.String("application/json"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	})
	if err != nil {
		return "", fmt.Errorf("putting the template of stack %s, %d bytes, into bucket %s: %w (it has to be a bucket in %s that these credentials may write below hardtack/ and read)",
			c.stack, len(body), bucket, awserr.Explain(err, "s3:PutObject"), c.config.AWS.Region)
	}
	return objectURL(c.config.AWS.Region, bucket, key), nil
}

// objectURL is the address of an object (S3 User Guide, "Methods for accessing a general purpose bucket"). A bucket with dots in its name
// has the path-style one, since the certificate of S3's hosts is for one label.
func objectURL(region, bucket, key string) string {
	host := "s3." + region + ".amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		host += ".cn"
	}
	if strings.Contains(bucket, ".") {
		return "https://" + host + "/" + bucket + "/" + key
	}
	return "https://" + bucket + "." + host + "/" + key
}
