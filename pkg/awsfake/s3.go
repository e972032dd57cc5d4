package awsfake

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxUpload is the largest object in the stand-in, in bytes. S3's own limit of one request is 5 GiB.
const maxUpload = 256 << 20

// S3 is the account's buckets, all in its home region: objects are written once by PutObject with If-None-Match, read and listed.
// Objects are kept in memory, without versions: a bucket's lifecycle and versions are checked and shown, and not carried out.
type S3 struct {
	account *Account
	buckets map[string]*s3Bucket
}

// Bucket is a bucket's configuration.
type Bucket struct {
	Name string
	// Key encrypts its objects; empty is S3's own.
	Key       string
	Versioned bool
	// Private buckets let nobody in by a policy for everybody (RestrictPublicBuckets).
	Private bool
	// Days is after how many days objects are deleted; 0 is never.
	Days int
	Tags map[string]string
	// BlockPolicy buckets refuse a policy that allows everybody something (BlockPublicPolicy).
	BlockPolicy bool
}

type s3Bucket struct {
	Bucket
	objects map[string]s3Object
	// policy has the denials of everybody, and public what everybody may, signed or not.
	policy, public Policy
}

type s3Object struct {
	data []byte
	sum  [sha256.Size]byte
	at   time.Time
	// kind is the type of the content; empty is S3's own.
	kind string
}

// S3 returns the account's buckets.
func (a *Account) S3() *S3 { return a.regional.s3 }

func newS3(a *Account) *S3 { return &S3{account: a, buckets: map[string]*s3Bucket{}} }

// bucketName is that of S3's rules for names of general purpose buckets, without dots.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

func (s *S3) create(b Bucket) error {
	if !bucketName.MatchString(b.Name) {
		return &Error{Status: http.StatusBadRequest, Code: "InvalidBucketName", Message: "The specified bucket is not valid."}
	}
	if s.buckets[b.Name] != nil {
		return &Error{Status: http.StatusConflict, Code: "BucketAlreadyOwnedByYou", Message: "Your previous request to create the named bucket succeeded and you already own it."}
	}
	s.buckets[b.Name] = &s3Bucket{Bucket: b, objects: map[string]s3Object{}}
	return nil
}

// Create creates a bucket.
func (s *S3) Create(b Bucket) error {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	return s.create(b)
}

// Buckets returns all buckets, by name.
func (s *S3) Buckets() []Bucket {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	list := []Bucket{}
	for _, name := range sortedKeys(s.buckets) {
		b := s.buckets[name].Bucket
		b.Tags = maps.Clone(b.Tags)
		list = append(list, b)
	}
	return list
}

// Objects returns the content of a bucket by key; nil if there is no such bucket.
func (s *S3) Objects(bucket string) map[string][]byte {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	b := s.buckets[bucket]
	if b == nil {
		return nil
	}
	out := map[string][]byte{}
	for key, o := range b.objects {
		out[key] = slices.Clone(o.data)
	}
	return out
}

// Set puts or replaces an object without a question, or removes it if data is nil: what an operator, or a fault, can do.
func (s *S3) Set(bucket, key string, data []byte) {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	b := s.buckets[bucket]
	if data == nil {
		delete(b.objects, key)
		return
	}
	b.objects[key] = s3Object{slices.Clone(data), sha256.Sum256(data), s.account.clock.Now(), ""}
}

// SetPolicy sets a bucket's policy, in JSON. It fails as S3's PutBucketPolicy does, and if the policy has more than awsfake models.
func (s *S3) SetPolicy(bucket string, document []byte) error {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	b := s.buckets[bucket]
	if b == nil {
		return &Error{Status: http.StatusNotFound, Code: "NoSuchBucket", Message: "The specified bucket does not exist"}
	}
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return refuse("MalformedPolicy", "%v", err)
	}
	return b.setPolicy(v)
}

// Public returns an object as anybody can read it by the bucket's URL, without credentials. Its error is S3's: AccessDenied also for what
// is not there, unless everybody may list the bucket.
func (s *S3) Public(bucket, key string) ([]byte, error) {
	s.account.mu.Lock()
	defer s.account.mu.Unlock()
	b := s.buckets[bucket]
	if b == nil {
		return nil, &Error{Status: http.StatusNotFound, Code: "NoSuchBucket", Message: "The specified bucket does not exist"}
	}
	context := map[string][]string{"aws:securetransport": {"true"}}
	arn := "arn:aws:s3:::" + bucket + "/" + key
	if b.Private || judge([]Policy{b.policy, b.public}, "s3:GetObject", arn, question{values: context}) != allowed {
		return nil, &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied"}
	}
	o, ok := b.objects[key]
	if !ok {
		return nil, &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied"}
	}
	return slices.Clone(o.data), nil
}

// find returns the bucket of a call.
func (s *S3) find(c *call) (*s3Bucket, string, error) {
	name, key, _ := strings.Cut(strings.TrimPrefix(c.Path, "/"), "/")
	b := s.buckets[name]
	if b == nil {
		return nil, "", &Error{Status: http.StatusNotFound, Code: "NoSuchBucket", Message: "The specified bucket does not exist"}
	}
	return b, key, nil
}

// needs of S3: the object, or the bucket for a list. The bucket's policy is judged with the caller's: a denial wins.
func (s *S3) needs(c *call) []need {
	name, _, _ := strings.Cut(strings.TrimPrefix(c.Path, "/"), "/")
	n := need{action: "s3:" + c.Action, arn: "arn:aws:s3:::" + strings.TrimPrefix(c.Path, "/"), context: s3Context(c)}
	switch c.Action {
	case "ListObjectsV2":
		n.action, n.arn = "s3:ListBucket", "arn:aws:s3:::"+name
		n.context["s3:prefix"] = []string{c.Query.Get("prefix")}
	case "HeadObject":
		n.action = "s3:GetObject"
	case "PutObject":
		if v := c.header("If-None-Match"); v != "" {
			n.context["s3:if-none-match"] = []string{v}
		}
	}
	return []need{n}
}

// s3Context are the keys that every call of S3 has. A presigned URL is authenticated by its query.
func s3Context(c *call) map[string][]string {
	kind := "REST-HEADER"
	if c.Query.Has("X-Amz-Signature") {
		kind = "REST-QUERY-STRING"
	}
	return map[string][]string{
		"s3:ResourceAccount": {owner}, "s3:authType": {kind}, "s3:signatureversion": {"AWS4-HMAC-SHA256"}, "s3:x-amz-content-sha256": {c.header("X-Amz-Content-Sha256")},
	}
}

// denied reports whether the bucket's policy denies a call.
func (s *S3) denied(b *s3Bucket, c *call) bool {
	n := s.needs(c)[0]
	q, err := n.question()
	if err != nil {
		return true
	}
	q.values["aws:securetransport"] = []string{"true"}
	return judge([]Policy{b.policy}, n.action, n.arn, q) == denied
}

// serve carries out one call.
func (s *S3) serve(c *call) (any, error) {
	b, key, err := s.find(c)
	if err != nil {
		return nil, err
	}
	if s.denied(b, c) {
		return nil, &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied: with an explicit deny in a resource-based policy"}
	}
	switch c.Action {
	case "PutObject":
		return s.putObject(c, b, key)
	case "ListObjectsV2":
		return s.list(c, b)
	}
	o, ok := b.objects[key]
	if !ok {
		return nil, s.missing(c, b)
	}
	reply := s3Reply{data: o.data, header: map[string]string{"ETag": etag(o), "Last-Modified": o.at.UTC().Format(http.TimeFormat), "Content-Type": cmp.Or(o.kind, "binary/octet-stream")}}
	if c.header("X-Amz-Checksum-Mode") == "ENABLED" {
		reply.header["X-Amz-Checksum-Sha256"] = base64.StdEncoding.EncodeToString(o.sum[:])
	}
	return reply, nil
}

// missing is the refusal of a key that is not there: a caller who may not list is not told ("GetObject": "If you don't have the
// s3:ListBucket permission, Amazon S3 returns an HTTP status code 403").
func (s *S3) missing(c *call, b *s3Bucket) error {
	list := need{action: "s3:ListBucket", arn: "arn:aws:s3:::" + b.Name, context: s3Context(c)}
	list.context["s3:prefix"] = []string{strings.TrimPrefix(c.Path, "/"+b.Name+"/")}
	if c.Caller != nil && permit(c, list) != nil {
		return &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Access Denied"}
	}
	return &Error{Status: http.StatusNotFound, Code: "NoSuchKey", Message: "The specified key does not exist."}
}

// etag is not the MD5 of the data: callers must not rely on that ("The ETag may or may not be an MD5 digest").
func etag(o s3Object) string { return `"` + hex.EncodeToString(o.sum[:16]) + `"` }

// putObject checks what the request says about its body, and replaces nothing if it says so.
func (s *S3) putObject(c *call, b *s3Bucket, key string) (any, error) {
	sum := sha256.Sum256(c.Body)
	switch said := c.header("X-Amz-Content-Sha256"); {
	case key == "" || len(key) > 1024:
		return nil, &Error{Status: http.StatusBadRequest, Code: "KeyTooLongError", Message: "Your key is too long"}
	case said != hex.EncodeToString(sum[:]):
		return nil, &Error{Status: http.StatusBadRequest, Code: "XAmzContentSHA256Mismatch", Message: "The provided 'x-amz-content-sha256' header does not match what was computed."}
	}
	if said := c.header("X-Amz-Checksum-Sha256"); said != "" && said != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, &Error{Status: http.StatusBadRequest, Code: "BadDigest", Message: "The SHA256 you specified did not match the calculated checksum."}
	}
	switch condition := c.header("If-None-Match"); {
	case condition != "" && condition != "*":
		return nil, &Error{Status: http.StatusNotImplemented, Code: "NotImplemented", Message: "A header you provided implies functionality that is not implemented"}
	case condition == "*":
		if _, there := b.objects[key]; there {
			return nil, &Error{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Message: "At least one of the pre-conditions you specified did not hold"}
		}
	}
	o := s3Object{slices.Clone(c.Body), sum, c.Now, c.header("Content-Type")}
	b.objects[key] = o
	return s3Reply{header: map[string]string{"ETag": etag(o), "X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum[:])}}, nil
}

// pageOfObjects is how many keys an answer has at most.
const pageOfObjects = 1000

type wireObject struct {
	Key          string
	LastModified string
	ETag         string
	Size         int
	StorageClass string
}

type wireObjects struct {
	Name, Prefix          string
	KeyCount, MaxKeys     int
	IsTruncated           bool
	ContinuationToken     string `xml:",omitempty"`
	NextContinuationToken string `xml:",omitempty"`
	Contents              []wireObject
}

// list returns keys in the order of their bytes. The token of a page is of no form that callers know.
func (s *S3) list(c *call, b *s3Bucket) (any, error) {
	var keys []string
	for _, key := range sortedKeys(b.objects) {
		if strings.HasPrefix(key, c.Query.Get("prefix")) {
			keys = append(keys, key)
		}
	}
	part, token, err := page(keys, pageOfObjects, c.Query.Get("continuation-token"))
	if err != nil {
		return nil, &Error{Status: http.StatusBadRequest, Code: "InvalidArgument", Message: "The continuation token provided is incorrect"}
	}
	out := wireObjects{Name: b.Name, Prefix: c.Query.Get("prefix"), KeyCount: len(part), MaxKeys: pageOfObjects,
		IsTruncated: token != "", ContinuationToken: c.Query.Get("continuation-token"), NextContinuationToken: token}
	for _, key := range part {
		o := b.objects[key]
		out.Contents = append(out.Contents, wireObject{key, o.at.UTC().Format("2006-01-02T15:04:05.000Z"), etag(o), len(o.data), "STANDARD"})
	}
	return s3Reply{document: out}, nil
}

// setPolicy takes a bucket's policy: denials of everybody, about the bucket and its objects, and what everybody may, unless the bucket
// blocks public policies. An allowance for somebody would be more than awsfake models.
func (b *s3Bucket) setPolicy(v any) error {
	var p struct {
		Version   string           `json:"Version"`
		Statement []map[string]any `json:"Statement"`
	}
	raw, err := json.Marshal(v)
	if err == nil {
		err = strictly(raw, &p)
	}
	if err != nil {
		return refuse("MalformedPolicy", "%v", err)
	}
	for _, s := range p.Statement {
		who, _ := s["Principal"].(map[string]any)
		if s["Principal"] != "*" && (len(who) != 1 || who["AWS"] != "*") {
			return refuse("MalformedPolicy", "awsfake models bucket policies about everybody, and no others: %s", raw)
		}
		if s["Effect"] == "Allow" && b.BlockPolicy {
			return &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "User is not authorized to perform: s3:PutBucketPolicy because public policies are prevented by the BlockPublicPolicy setting in S3 Block Public Access."}
		}
		delete(s, "Principal")
	}
	all, err := document(p)
	if err != nil {
		return err
	}
	b.policy, b.public = nil, nil
	for _, s := range all {
		if s.Deny {
			b.policy = append(b.policy, s)
		} else {
			b.public = append(b.public, s)
		}
		for _, arn := range s.Resources {
			if arn != "arn:aws:s3:::"+b.Name && !strings.HasPrefix(arn, "arn:aws:s3:::"+b.Name+"/") {
				return refuse("MalformedPolicy", "Policy has invalid resource: %s", arn)
			}
		}
	}
	return nil
}
