package awsfake

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// publisher is a policy that may make and promote images, and nothing else.
const publisher = `{"Version": "2012-10-17", "Statement": [
  {"Effect": "Allow", "Action": ["ebs:StartSnapshot", "ebs:PutSnapshotBlock", "ebs:CompleteSnapshot", "ec2:CreateTags"], "Resource": "arn:aws:ec2:*::snapshot/*"},
  {"Effect": "Allow", "Action": ["ec2:RegisterImage", "ec2:CreateTags"], "Resource": ["arn:aws:ec2:*::image/*", "arn:aws:ec2:*::snapshot/*"]},
  {"Effect": "Allow", "Action": "ec2:DeleteSnapshot", "Resource": "arn:aws:ec2:*::snapshot/*", "Condition": {"StringEquals": {"aws:ResourceTag/by": "hardtack"}}},
  {"Effect": "Allow", "Action": "ssm:PutParameter", "Resource": "arn:aws:ssm:*:*:parameter/hardtack/*"}]}`

func TestPermissionsToPublish(t *testing.T) {
	s := newShop(t, Options{})
	policy, err := ParsePolicy([]byte(publisher))
	if err != nil {
		t.Fatal(err)
	}
	root := s.in(HomeRegion, s.account.AddUser("root", Administrator()))
	ci := s.in(HomeRegion, s.account.AddUser("ci", policy))
	key := s.account.SSM().AddKey("alias/mine")

	blocks := map[int][]byte{0: blockOf("boot")}
	id := ci.publish(t, ebs.StartSnapshotInput{}, blocks)
	image := ci.register(t, imageOf("hardtack", id))
	_, err = ci.ebs.ListSnapshotBlocks(t.Context(), &ebs.ListSnapshotBlocksInput{SnapshotId: &id})
	wantSaid(t, "reading", err, "AccessDeniedException UNAUTHORIZED_ACCOUNT")
	_, err = ci.ebs.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), Encrypted: aws.Bool(true), KmsKeyArn: &key})
	wantSaid(t, "using a key", err, "AccessDeniedException DEPENDENCY_ACCESS_DENIED")
	_, err = ci.ec2.DeregisterImage(t.Context(), &ec2.DeregisterImageInput{ImageId: &image})
	wantCode(t, err, "UnauthorizedOperation", "")
	_, err = ci.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id})
	wantCode(t, err, "UnauthorizedOperation", "")
	in := put(imageParameter, image, ssmtypes.ParameterTypeString)
	in.DataType = aws.String(dataImage)
	_, err = ci.ssm.PutParameter(t.Context(), in)
	wantCode(t, err, "AccessDeniedException", "")
	if _, err := root.ssm.PutParameter(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	if got := root.read(t, id); !bytes.Equal(got[0], blocks[0]) {
		t.Error("the administrator reads something else")
	}
	stranger := s.in(HomeRegion, Credentials{AccessKey: "AKIDNOBODY", Secret: "x"})
	_, err = stranger.ebs.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	wantSaid(t, "a stranger", err, "UnrecognizedClientException")
}

// swap changes the body of requests after they were signed.
type swap struct{ body []byte }

func (s swap) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body = http.NoBody
	if len(s.body) > 0 {
		r.Body = readCloser{bytes.NewReader(s.body)}
	}
	return http.DefaultTransport.RoundTrip(r)
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// TestUnsignedBlocks: a block is not signed, but its checksum is; the body of StartSnapshot is signed.
func TestUnsignedBlocks(t *testing.T) {
	s := newShop(t, Options{})
	root := s.in(HomeRegion, s.account.AddUser("root", Administrator()))
	id := root.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	swapped := func(body []byte) func(*ebs.Options) {
		return func(o *ebs.Options) { o.HTTPClient = &http.Client{Transport: swap{body}} }
	}
	_, err := root.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, blockOf("mine")), swapped(blockOf("other")))
	wantSaid(t, "another block", err, "ValidationException INVALID_BLOCK")
	_, err = root.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, blockOf("mine")), swapped(blockOf("mine")))
	wantSaid(t, "the same block", err, "ok")
	start := []byte(strings.Replace(`{"ClientToken":"x","VolumeSize":1}`, "1", "9", 1))
	_, err = root.ebs.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), ClientToken: aws.String("x")}, swapped(start))
	wantSaid(t, "another size", err, "InvalidSignatureException")
}
