package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
)

const bucketOfTests = "hardtack-123456789012-us-west-2-demo"

func sha256Of(data []byte) [32]byte { return sha256.Sum256(data) }
func hexOf(data []byte) string      { return hex.EncodeToString(data) }

// snapshot is a file and its description.
type snapshot struct {
	Object
	file string
}

var taken = time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC)

// snapshotFile makes a file that passes for a snapshot of epoch 1.
func snapshotFile(t *testing.T, text string) snapshot {
	t.Helper()
	file := filepath.Join(t.TempDir(), "snapshot")
	data := []byte(strings.Repeat(text, 1000))
	assert.NilError(t, os.WriteFile(file, data, 0o600))
	sum := sha256Of(data)
	return snapshot{Object{Name: Name("demo", 1, taken, 7), Epoch: 1, Member: "a", Taken: taken, Revision: 7, Keys: 3, Size: int64(len(data)),
		SHA256: hexOf(sum[:]), ClusterID: etcd.ID(1), Version: "3.6.14"}, file}
}

// at is a snapshot of another time and epoch.
func (s snapshot) at(epoch int, taken time.Time) snapshot {
	s.Epoch, s.Taken, s.Name = epoch, taken, Name("demo", epoch, taken, s.Revision)
	return s
}

// inBucket is a place in a bucket, for the holder of credentials.
func inBucket(t *testing.T, url, location string, c awsfake.Credentials) Place {
	t.Helper()
	place, err := Open(location, Options{Cluster: "demo",
		Load: func(context.Context) (aws.Config, error) {
			return aws.Config{Region: "us-west-2", BaseEndpoint: &url, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}, nil
		},
		Account: func(context.Context) (string, error) { return "123456789012", nil }})
	assert.NilError(t, err)
	return place
}

// policy is what members may do, as the stack says it.
const policy = `{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"], "Resource": "arn:aws:s3:::` + bucketOfTests + `/demo/*"},
	{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::` + bucketOfTests + `", "Condition": {"StringLike": {"s3:prefix": "demo/*"}}}]}`

// fake is an account with the bucket, and a member's credentials in it.
func fake(t *testing.T) (*awsfake.Account, awsfake.Credentials, string) {
	t.Helper()
	account := awsfake.New(awsfake.Options{})
	assert.NilError(t, account.S3().Create(awsfake.Bucket{Name: bucketOfTests}))
	p, err := awsfake.ParsePolicy([]byte(policy))
	assert.NilError(t, err)
	who := account.AddUser("member", p)
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	return account, who, server.URL
}

// places are an empty place of each kind.
func places(t *testing.T) map[string]Place {
	t.Helper()
	in, err := Open("dir:"+t.TempDir(), Options{Cluster: "demo"})
	assert.NilError(t, err)
	_, who, url := fake(t)
	return map[string]Place{"dir": in, "bucket": inBucket(t, url, "s3://hardtack-{account}-{region}-demo", who)}
}

// suite holds a place to its contract.
func suite(t *testing.T, place Place) {
	t.Helper()
	ctx := t.Context()
	if list, err := place.List(ctx); err != nil || len(list) > 0 {
		t.Fatalf("empty: %v, %v", list, err)
	}
	one := snapshotFile(t, "one")
	later, next := one.at(1, taken.Add(15*time.Minute)), one.at(10, taken.Add(time.Minute))
	for _, s := range []snapshot{later, one, next} {
		assert.NilError(t, place.Put(ctx, s.Object, s.file))
	}
	if err := place.Put(ctx, one.Object, one.file); !errors.Is(err, ErrExists) {
		t.Errorf("again: %v", err)
	}
	list, err := place.List(ctx)
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []Object{later.Object, next.Object, one.Object})
	for epoch, want := range map[int]*Object{0: &later.Object, 1: &later.Object, 10: &next.Object, 2: nil} {
		got, err := place.Newest(ctx, epoch)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, want)
	}
	in, err := place.Open(ctx, one.Name)
	assert.NilError(t, err)
	data, err := io.ReadAll(in)
	assert.NilError(t, errors.Join(err, in.Close()))
	assert.Equal(t, string(data), strings.Repeat("one", 1000))
	for _, name := range []string{Name("demo", 1, taken, 8), "demo/../x", one.Name + describedEnd} {
		if _, err := place.Open(ctx, name); !errors.Is(err, ErrNotFound) {
			t.Errorf("opening %s: %v", name, err)
		}
	}
}

func TestPlaces(t *testing.T) {
	for name, place := range places(t) {
		t.Run(name, func(t *testing.T) { suite(t, place) })
	}
	t.Run("prefix", func(t *testing.T) {
		account, _, url := fake(t)
		owner := account.AddUser("owner", awsfake.Administrator())
		suite(t, inBucket(t, url, "s3://"+bucketOfTests+"/a/b", owner))
	})
}

// TestMoto lets another stand-in judge the client.
func TestMoto(t *testing.T) {
	url := moto.Start(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url+"/"+bucketOfTests,
		strings.NewReader(`<CreateBucketConfiguration><LocationConstraint>us-west-2</LocationConstraint></CreateBucketConfiguration>`))
	assert.NilError(t, err)
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20260101/us-west-2/s3/aws4_request, SignedHeaders=host, Signature=x")
	answer, err := http.DefaultClient.Do(r)
	assert.NilError(t, err)
	assert.NilError(t, answer.Body.Close())
	assert.Equal(t, answer.StatusCode, http.StatusOK)
	suite(t, inBucket(t, url, "s3://"+bucketOfTests+"/a", awsfake.Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"}))
}

// TestUndescribed: a snapshot without its description is no backup, nor is a description without its snapshot; and one that does
// not fit is an error.
func TestUndescribed(t *testing.T) {
	account, who, url := fake(t)
	place := inBucket(t, url, "s3://"+bucketOfTests, who)
	name := Name("demo", 1, taken, 7)
	account.S3().Set(bucketOfTests, name, []byte("snapshot"))
	account.S3().Set(bucketOfTests, Name("demo", 1, taken, 8)+describedEnd, []byte("{}"))
	if list, err := place.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	account.S3().Set(bucketOfTests, name+describedEnd, []byte(`{"name": "other"}`))
	if _, err := place.Newest(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "does not describe") {
		t.Errorf("a description of another: %v", err)
	}
}

// TestManyPages: a list has as many pages as it needs.
func TestManyPages(t *testing.T) {
	account, who, url := fake(t)
	place := inBucket(t, url, "s3://"+bucketOfTests, who)
	for i := range 2100 {
		account.S3().Set(bucketOfTests, Name("demo", 1, taken.Add(-time.Duration(i)*time.Second), 7), []byte("snapshot"))
	}
	s := snapshotFile(t, "x").at(1, taken.Add(time.Hour))
	assert.NilError(t, place.Put(t.Context(), s.Object, s.file))
	o, err := place.Newest(t.Context(), 0)
	assert.NilError(t, err)
	assert.DeepEqual(t, o, &s.Object)
	assert.Equal(t, account.Calls()["s3:ListObjectsV2"], 3)
}

// TestAnswers: what S3 refuses or loses is tried again where that helps, and named where it does not.
func TestAnswers(t *testing.T) {
	slow := awsfake.Fault{Refuse: &awsfake.Error{Status: 503, Code: "SlowDown", Message: "slower"}}
	race := awsfake.Fault{Refuse: &awsfake.Error{Status: 409, Code: "ConditionalRequestConflict", Message: "a race"}}
	gone := awsfake.Fault{LoseReply: true}
	for name, faults := range map[string][]awsfake.Fault{"slow": {slow, slow}, "race": {race}, "answer lost": {gone}, "second answer lost": {{}, gone}} {
		t.Run(name, func(t *testing.T) {
			account, who, url := fake(t)
			script := &awsfake.Script{}
			script.Add("PutObject", faults...)
			account.SetFaults(script)
			place := inBucket(t, url, "s3://"+bucketOfTests, who)
			s := snapshotFile(t, "x")
			assert.NilError(t, place.Put(t.Context(), s.Object, s.file))
			if list, err := place.List(t.Context()); err != nil || len(list) != 1 {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
	t.Run("answer lost, and another's object", func(t *testing.T) {
		account, who, url := fake(t)
		other := snapshotFile(t, "other")
		account.S3().Set(bucketOfTests, other.Name, []byte("other"))
		script := &awsfake.Script{}
		script.Add("PutObject", awsfake.Fault{Refuse: &awsfake.Error{Status: 500, Code: "InternalError", Message: "?"}})
		account.SetFaults(script)
		if err := inBucket(t, url, "s3://"+bucketOfTests, who).Put(t.Context(), other.Object, other.file); !errors.Is(err, ErrExists) {
			t.Errorf("%v", err)
		}
	})
	t.Run("not allowed", func(t *testing.T) {
		account, _, url := fake(t)
		place := inBucket(t, url, "s3://"+bucketOfTests, account.AddUser("nobody"))
		s := snapshotFile(t, "x")
		for needs, err := range map[string]error{"s3:PutObject": place.Put(t.Context(), s.Object, s.file), "s3:ListBucket": func() error { _, err := place.List(t.Context()); return err }()} {
			if !errors.Is(err, ErrForbidden) || !strings.Contains(err.Error(), "allow "+needs) {
				t.Errorf("%v", err)
			}
		}
	})
	t.Run("no bucket", func(t *testing.T) {
		account, _, url := fake(t)
		if _, err := inBucket(t, url, "s3://nothing", account.AddUser("owner", awsfake.Administrator())).List(t.Context()); err == nil || !strings.Contains(err.Error(), "stack apply") {
			t.Errorf("%v", err)
		}
	})
}

// TestCutOff: a connection that ends in the middle of an upload leaves nothing, and the next attempt sends all of it.
func TestCutOff(t *testing.T) {
	account := awsfake.New(awsfake.Options{})
	assert.NilError(t, account.S3().Create(awsfake.Bucket{Name: bucketOfTests}))
	cuts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && cuts < 2 {
			cuts++
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
			panic(http.ErrAbortHandler)
		}
		account.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	place := inBucket(t, server.URL, "s3://"+bucketOfTests, awsfake.Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"})
	s := snapshotFile(t, "whole")
	assert.NilError(t, place.Put(t.Context(), s.Object, s.file))
	if got := account.S3().Objects(bucketOfTests)[s.Name]; !bytes.Equal(got, []byte(strings.Repeat("whole", 1000))) || cuts != 2 {
		t.Errorf("%d bytes after %d cuts", len(got), cuts)
	}
	// A file that is not what its description says is refused by S3.
	bad := s.at(2, taken)
	assert.NilError(t, os.WriteFile(bad.file, []byte(strings.Repeat("whale", 1000)), 0o600))
	if err := place.Put(t.Context(), bad.Object, bad.file); err == nil || !strings.Contains(err.Error(), "XAmzContentSHA256Mismatch") {
		t.Errorf("%v", err)
	}
	if list, err := place.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestDirIsNotMade: a place that is not mounted is an error, and no empty place.
func TestDirIsNotMade(t *testing.T) {
	place, err := Open("dir:"+filepath.Join(t.TempDir(), "gone"), Options{Cluster: "demo"})
	assert.NilError(t, err)
	s := snapshotFile(t, "x")
	_, listing := place.List(t.Context())
	_, asking := place.Newest(t.Context(), 0)
	for _, err := range []error{place.Put(t.Context(), s.Object, s.file), listing, asking} {
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "mount it, or make it") {
			t.Errorf("%v", err)
		}
	}
}

// TestDamagedHidesNone: a description that cannot be read hides no other backup, and nothing restores its own.
func TestDamagedHidesNone(t *testing.T) {
	root := t.TempDir()
	place, err := Open("dir:"+root, Options{Cluster: "demo"})
	assert.NilError(t, err)
	old := snapshotFile(t, "old")
	good := old.at(1, taken.Add(time.Hour))
	for _, s := range []snapshot{old, good} {
		assert.NilError(t, place.Put(t.Context(), s.Object, s.file))
	}
	assert.NilError(t, os.WriteFile(filepath.Join(root, old.Name+describedEnd), nil, 0o600))
	list, err := place.List(t.Context())
	assert.NilError(t, err)
	assert.DeepEqual(t, list, []Object{good.Object, {Name: old.Name, Epoch: old.Epoch, Taken: old.Taken, Revision: old.Revision}})
}
