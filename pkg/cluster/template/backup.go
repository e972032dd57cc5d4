package template

import (
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// The logical names of the bucket of etcd's backups and of its policy.
const (
	bucketID       = "EtcdBackups"
	bucketPolicyID = "EtcdBackupsPolicy"
)

// deletedDays is how many days a backup is kept once it has expired or was deleted: time to notice.
const deletedDays = 7

// makesBucket reports whether the stack makes a bucket for etcd's backups.
func (b *builder) makesBucket() bool {
	return b.has(role.Etcd) && b.cluster.Cluster.Etcd.Backup.To == spec.BackupStack
}

// bucketName is the bucket's name with CloudFormation's words in it.
func (b *builder) bucketName() string {
	return machine.StackBackups(b.cluster.Cluster.Name).In("${AWS::AccountId}", "${AWS::Region}").Bucket
}

// bucket adds the bucket of etcd's backups. It stays when the stack is deleted: backups are for the day on which a stack, or what
// it had made, is gone.
func (b *builder) bucket() {
	if !b.makesBucket() {
		return
	}
	c := b.cluster.Cluster
	encryption := object{"SSEAlgorithm": "AES256"}
	if c.Etcd.Backup.Key != "" {
		encryption = object{"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": c.Etcd.Backup.Key}
	}
	kept := func(kind string, properties object) Resource {
		return Resource{Type: kind, DeletionPolicy: "RetainExceptOnCreate", UpdateReplacePolicy: "Retain", Properties: properties}
	}
	b.out.Resources[bucketID] = kept("AWS::S3::Bucket", object{
		"BucketName":                     sub(b.bucketName()),
		"BucketEncryption":               object{"ServerSideEncryptionConfiguration": []any{object{"ServerSideEncryptionByDefault": encryption, "BucketKeyEnabled": true}}},
		"PublicAccessBlockConfiguration": object{"BlockPublicAcls": true, "BlockPublicPolicy": true, "IgnorePublicAcls": true, "RestrictPublicBuckets": true},
		"VersioningConfiguration":        object{"Status": "Enabled"},
		"LifecycleConfiguration": object{"Rules": []any{
			object{"Id": "keep", "Status": "Enabled", "ExpirationInDays": c.Etcd.Backup.Keep, "NoncurrentVersionExpiration": object{"NoncurrentDays": deletedDays}},
			object{"Id": "forget", "Status": "Enabled", "ExpiredObjectDeleteMarker": true, "AbortIncompleteMultipartUpload": object{"DaysAfterInitiation": 1}},
		}},
		"Tags": b.tags(c.Name + "-etcd-backups"),
	})
	b.out.Resources[bucketPolicyID] = kept("AWS::S3::BucketPolicy", object{
		"Bucket": ref(bucketID), "PolicyDocument": object{"Version": "2012-10-17", "Statement": bucketStatements(attribute(bucketID, "Arn"), object{"Fn::Sub": "${" + bucketID + ".Arn}/*"})},
	})
}

// bucketStatements are what nobody may do: come without TLS, or write without saying that nothing is to be replaced ("Enforce
// conditional writes on Amazon S3 buckets", S3 user guide). Who may come at all is the roles' policies' to say.
func bucketStatements(bucket, objects any) []any {
	everybody := object{"AWS": "*"}
	return []any{
		object{"Sid": "OnlyWithTLS", "Effect": "Deny", "Principal": everybody, "Action": "s3:*", "Resource": []any{bucket, objects},
			"Condition": object{"Bool": object{"aws:SecureTransport": "false"}}},
		object{"Sid": "ReplaceNothing", "Effect": "Deny", "Principal": everybody, "Action": "s3:PutObject", "Resource": objects,
			"Condition": object{"Null": object{"s3:if-none-match": "true"}}},
	}
}

// backupPolicy lets a member's machine store, list and read the cluster's backups. There is no permission to delete one, and none
// to replace one in the stack's bucket.
func (b *builder) backupPolicy(g spec.Group) []Statement {
	at, err := machine.ParseBackups(b.cluster.Backups())
	if !g.Roles.Has(role.Etcd) || err != nil || at.Kind != machine.BackupsS3 || at.Endpoint != "" {
		return nil
	}
	bucket := "arn:${AWS::Partition}:s3:::" + at.In("${AWS::AccountId}", "${AWS::Region}").Bucket
	prefix := strings.TrimPrefix(at.Prefix+"/"+b.cluster.Cluster.Name+"/*", "/")
	statements := []Statement{
		{Sid: "StoreBackups", Effect: "Allow", Action: []string{"s3:GetObject", "s3:PutObject"}, Resource: []string{bucket + "/" + prefix}},
		{Sid: "ListBackups", Effect: "Allow", Action: []string{"s3:ListBucket"}, Resource: []string{bucket},
			Condition: map[string]map[string][]string{"StringLike": {"s3:prefix": {prefix}}}},
	}
	if key := b.cluster.Cluster.Etcd.Backup.Key; key != "" {
		statements = append(statements, Statement{Sid: "UseTheKeyByS3", Effect: "Allow", Action: []string{"kms:Decrypt", "kms:GenerateDataKey"},
			Resource: []string{key}, Condition: map[string]map[string][]string{"StringLike": {"kms:ViaService": {"s3.*"}}}})
	}
	return statements
}

// moduleBackups is the bucket of etcd's backups in a Terraform module.
type moduleBackups struct {
	Bucket string `json:"bucket"`
	// Keep and Deleted are days, Key the ARN of a KMS key or empty.
	Keep    int    `json:"keep"`
	Deleted int    `json:"deleted"`
	Key     string `json:"key"`
}

func (b *builder) moduleBackups() []moduleBackups {
	if !b.makesBucket() {
		return []moduleBackups{}
	}
	e := b.cluster.Cluster.Etcd.Backup
	return []moduleBackups{{b.bucketName(), e.Keep, deletedDays, e.Key}}
}

// backupParts are the costs of etcd's backups in S3.
func backupParts(c *spec.Complete) []part {
	e := c.Cluster.Etcd.Backup
	if at, err := machine.ParseBackups(c.Backups()); err != nil || at.Kind != machine.BackupsS3 || at.Endpoint != "" {
		return nil
	}
	members := 0
	for _, g := range c.Groups {
		if g.Roles.Has(role.Etcd) {
			members++
		}
	}
	const perPage, looksPerHour, minutes = 1000, 12, 60
	taken := hoursPerMonth * minutes / e.Every
	looks := members * hoursPerMonth * looksPerHour
	pages := (2*e.Keep*24*minutes/e.Every + perPage - 1) / perPage
	return []part{
		{"etcd's backups", "bucket-storage", "", "GB-month", fmt.Sprintf("%d snapshots a day of the database's size, each kept %d days and %d more", 24*minutes/e.Every, e.Keep, deletedDays)},
		{"backups' writes and lists", "bucket-write", fmt.Sprint(2*taken + looks*pages), "request", fmt.Sprintf("two writes a backup; each of %d members lists them every five minutes, in %d pages", members, pages)},
		{"backups' reads", "bucket-read", fmt.Sprint(looks), "request", "the newest description, as often"},
	}
}
