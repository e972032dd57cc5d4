package spec_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// TestBackups: where backups go follows from the store or the document, and the members' role file says it in few words.
func TestBackups(t *testing.T) {
	for text, want := range map[string]struct{ to, lines string }{
		"":                           {"s3://hardtack-{account}-{region}-demo", "ETCD_BACKUP=stack\n"},
		"etcd: {backup: {to: none}}": {"", ""},
		"etcd: {backup: {to: 's3://mine/a/b', every: 30}}": {"s3://mine/a/b", "ETCD_BACKUP=s3://mine/a/b\nETCD_BACKUP_EVERY=30\n"},
		"store: dir:/s": {"", ""},
		"store: dir:/s\netcd: {backup: {to: dir:/b}}":                                           {"dir:/b", "ETCD_BACKUP=dir:/b\n"},
		"store: dir:/s\netcd: {backup: {to: 's3://mine?endpoint=https://minio:9000&region=x'}}": {"s3://mine?endpoint=https://minio:9000&region=x", "ETCD_BACKUP=s3://mine?endpoint=https://minio:9000&region=x\n"},
	} {
		c := complete(t, clusterHead+text+"\n")
		assert.Equal(t, c.Backups(), want.to, text)
		files, err := c.Files("masters", nil)
		assert.NilError(t, err)
		var lines string
		for line := range strings.Lines(string(files[len(files)-1].Content)) {
			if strings.HasPrefix(line, "ETCD_BACKUP") {
				lines += line
			}
		}
		assert.Equal(t, lines, want.lines, text)
	}
	long := complete(t, strings.Replace(clusterHead, "demo", strings.Repeat("a", 63), 1)).Backups()
	if n := len(strings.NewReplacer("s3://", "", "{account}", "123456789012", "{region}", "ap-southeast-1").Replace(long)); n > 63 {
		t.Errorf("%s is a bucket's name of %d bytes", long, n)
	}
}

// TestBackupFindings: every wrong value is found, with its path.
func TestBackupFindings(t *testing.T) {
	for text, want := range map[string]string{
		"etcd: {backup: {to: stak}}":                                                  "etcd.backup.to: neither stack nor none nor a place",
		"etcd: {backup: {to: 's3://A'}}":                                              `"A" is not the name of a bucket`,
		"etcd: {backup: {to: 's3://mine//x'}}":                                        "is not a prefix",
		"etcd: {backup: {to: 's3://mine?endpont=https://x'}}":                         `"endpont" is not known`,
		"etcd: {backup: {to: 's3://mine?endpoint=x'}}":                                "is not of the form https://HOST:PORT",
		"etcd: {backup: {to: dir:b}}":                                                 "is not an absolute, clean path",
		"etcd: {backup: {to: dir:/b}}":                                                "a directory of a machine in AWS",
		"etcd: {backup: {every: 4}}":                                                  "etcd.backup.every: 4 is not between 5 and 30 minutes",
		"etcd: {backup: {keep: 0}}":                                                   "etcd.backup.keep: 0 is not between 1 and 3650 days",
		"etcd: {backup: {key: x}}":                                                    "etcd.backup.key: \"x\" is not the ARN",
		"etcd: {backup: {to: 's3://mine', keep: 3}}":                                  "etcd.backup.keep: is for the stack's bucket",
		"store: dir:/s\netcd: {backup: {to: stack}}":                                  "there is no stack that makes a bucket",
		"store: dir:/s\netcd: {backup: {to: 's3://mine'}}":                            "(add ?region=REGION)",
		"store: dir:/s\netcd: {backup: {to: 's3://x-{account}?region=x'}}":            "names a bucket after an AWS account",
		"etcd: {backup: {to: none, key: 'arn:aws:kms:us-west-2:123456789012:key/1'}}": "etcd.backup.key: is for a bucket in AWS",
	} {
		err := findings(t, clusterHead+text+"\n").Err()
		assert.Assert(t, err != nil && strings.Contains(err.Error(), want), "%s gives %v, want %q", text, err, want)
	}
}
