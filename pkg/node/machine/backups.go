package machine

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"
)

// The kinds of places of backups.
const (
	BackupsDir = "dir"
	BackupsS3  = "s3"
)

// The minutes between two backups. Each is restored for a trial, which is work; and machines are replaced one after another
// only while the newest backup is recent (pkg/cluster/rollout).
const (
	BackupMinutes      = 15
	LeastBackupMinutes = 5
	MostBackupMinutes  = 30
)

// BackupsEvery is the time between two backups.
func (e Etcd) BackupsEvery() time.Duration {
	return time.Duration(cmp.Or(e.BackupEvery, BackupMinutes)) * time.Minute
}

// BackupsStack stands for the bucket that the cluster's stack makes, StackBackups.
const BackupsStack = "stack"

// What a bucket's name may have in it: the number of the AWS account of whoever reads it, and the region.
const (
	BackupAccount = "{account}"
	BackupRegion  = "{region}"
)

// Backups is the parsed location of etcd's backups.
type Backups struct {
	// Kind is BackupsDir or BackupsS3.
	Kind string
	// Path is the absolute, clean path of a directory.
	Path string
	// Bucket is a bucket's name, with BackupAccount and BackupRegion in it where these are to be filled in, and Prefix what all
	// keys begin with: empty, or a clean path.
	Bucket, Prefix string
	// Endpoint is the URL of a service that speaks like S3, and Region the region that the bucket is in; empty for AWS's own in
	// the machine's region.
	Endpoint, Region string
}

// bucketForm is that of S3's bucket names without dots, which certificates of S3's names do not cover.
// It is made when it is needed, since its repetition is large.
var bucketForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`) })

// ParseBackups parses "dir:/path" or "s3://bucket/prefix", the latter with ?endpoint= and region= if they are not AWS's and
// the machine's.
func ParseBackups(text string) (Backups, error) {
	if p, ok := strings.CutPrefix(text, BackupsDir+":"); ok {
		if !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			return Backups{}, fmt.Errorf("%q is not an absolute, clean path below the root", p)
		}
		return Backups{Kind: BackupsDir, Path: p}, nil
	}
	rest, ok := strings.CutPrefix(text, BackupsS3+"://")
	if !ok {
		return Backups{}, fmt.Errorf("%q is not of the form s3://bucket/prefix or dir:/path", text)
	}
	rest, query, _ := strings.Cut(rest, "?")
	b := Backups{Kind: BackupsS3}
	b.Bucket, b.Prefix, _ = strings.Cut(rest, "/")
	if !bucketForm().MatchString(b.In("123456789012", "us-west-2").Bucket) {
		return Backups{}, fmt.Errorf("%q is not the name of a bucket: 3 to 63 small letters, digits and -", b.Bucket)
	}
	if b.Prefix != "" && (!fs.ValidPath(b.Prefix) || b.Prefix == "." || strings.ContainsFunc(b.Prefix, unsafe)) {
		return Backups{}, fmt.Errorf("%q is not a prefix: parts of letters, digits and !-_.*'(), with / between them", b.Prefix)
	}
	return b, b.options(query)
}

// unsafe reports whether a character is not one of S3's safe ones for keys.
func unsafe(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("!-_.*'()/", r)
}

// options reads what stands behind a question mark.
func (b *Backups) options(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%q: %w", query, err)
	}
	for name, v := range values {
		switch {
		case len(v) != 1 || v[0] == "":
			return fmt.Errorf("%s: one value is needed", name)
		case name == "region":
			b.Region = v[0]
		case name == "endpoint":
			u, err := url.Parse(v[0])
			if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
				return fmt.Errorf("endpoint %q is not of the form https://HOST:PORT", v[0])
			}
			b.Endpoint = u.Scheme + "://" + u.Host
		default:
			return fmt.Errorf("%q is not known: it is endpoint or region", name)
		}
	}
	return nil
}

// StackBackups is the bucket that the cluster's stack makes. Names of buckets are unique in the world: the account and the region
// are still to be filled in, and a long cluster's name is shortened.
func StackBackups(cluster string) Backups {
	const most = 63 - len("hardtack-123456789012-ap-southeast-1-")
	if len(cluster) > most {
		sum := sha256.Sum256([]byte(cluster))
		cluster = cluster[:most-9] + "-" + hex.EncodeToString(sum[:4])
	}
	return Backups{Kind: BackupsS3, Bucket: "hardtack-" + BackupAccount + "-" + BackupRegion + "-" + cluster}
}

// LocateBackups is ParseBackups for the place of a cluster's backups, which may be BackupsStack.
func LocateBackups(cluster, text string) (Backups, error) {
	if text == BackupsStack {
		return StackBackups(cluster), nil
	}
	return ParseBackups(text)
}

// In returns the location with the account and the region filled in.
func (b Backups) In(account, region string) Backups {
	b.Bucket = strings.NewReplacer(BackupAccount, account, BackupRegion, region).Replace(b.Bucket)
	return b
}

// String returns what ParseBackups takes.
func (b Backups) String() string {
	if b.Kind == BackupsDir {
		return BackupsDir + ":" + b.Path
	}
	text := BackupsS3 + "://" + b.Bucket
	if b.Prefix != "" {
		text += "/" + b.Prefix
	}
	values := url.Values{}
	for name, v := range map[string]string{"endpoint": b.Endpoint, "region": b.Region} {
		if v != "" {
			values.Set(name, v)
		}
	}
	if len(values) > 0 {
		text += "?" + values.Encode()
	}
	return text
}
