package awsfake

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// shop is an account in virtual time with the clients that publish images.
type shop struct {
	*bench
	ebs *ebs.Client
	url string
}

// unhurried is for tests that are not about rates.
var unhurried = map[string]float64{
	"ebs:StartSnapshot": 0, "ebs:PutSnapshotBlock": 0, "ebs:CompleteSnapshot": 0, "ebs:GetSnapshotBlock": 0, "ebs:ListSnapshotBlocks": 0,
	"ssm": 0, "ssm:PutParameter": 0,
}

func newShop(t *testing.T, o Options) *shop {
	t.Helper()
	if o.Rates == nil {
		o.Rates = unhurried
	}
	clock := NewVirtualClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	o.Clock = clock
	b := &bench{account: New(o), clock: clock}
	server := httptest.NewServer(b.account.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := b.account.Close(); err != nil {
			t.Error(err)
		}
	})
	b.dial(server.URL)
	return (&shop{bench: b, url: server.URL}).in(HomeRegion, Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"})
}

// in is the same account, for a region and a caller.
func (s *shop) in(region string, who Credentials) *shop {
	config := aws.Config{
		Region: region, BaseEndpoint: &s.url, Credentials: credentials.NewStaticCredentialsProvider(who.AccessKey, who.Secret, who.Token),
		RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
	}
	other := *s.bench
	other.ec2, other.ssm = ec2.NewFromConfig(config), ssm.NewFromConfig(config)
	return &shop{bench: &other, ebs: ebs.NewFromConfig(config), url: s.url}
}

// blockOf is a block of one word.
func blockOf(word string) []byte {
	return bytes.Repeat([]byte(word), BlockSize/len(word)+1)[:BlockSize]
}

func sha(data []byte) *string {
	sum := sha256.Sum256(data)
	return aws.String(base64.StdEncoding.EncodeToString(sum[:]))
}

func (s *shop) start(t *testing.T, in *ebs.StartSnapshotInput) string {
	t.Helper()
	out, err := s.ebs.StartSnapshot(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return *out.SnapshotId
}

func putOf(id string, index int, data []byte) *ebs.PutSnapshotBlockInput {
	return &ebs.PutSnapshotBlockInput{
		SnapshotId: &id, BlockIndex: aws.Int32(int32(index)), BlockData: bytes.NewReader(data), DataLength: aws.Int32(int32(len(data))),
		Checksum: sha(data), ChecksumAlgorithm: types.ChecksumAlgorithmChecksumAlgorithmSha256,
	}
}

func (s *shop) put(t *testing.T, id string, index int, data []byte) {
	t.Helper()
	out, err := s.ebs.PutSnapshotBlock(t.Context(), putOf(id, index, data))
	if err != nil {
		t.Fatal(err)
	}
	if *out.Checksum != *sha(data) || out.ChecksumAlgorithm != types.ChecksumAlgorithmChecksumAlgorithmSha256 {
		t.Errorf("block %d: checksum %s (%s), want %s", index, *out.Checksum, out.ChecksumAlgorithm, *sha(data))
	}
}

// completion is the call that seals a snapshot with these blocks.
func completion(id string, blocks map[int][]byte) *ebs.CompleteSnapshotInput {
	all := sha256.New()
	for _, index := range sortedKeys(blocks) {
		sum := sha256.Sum256(blocks[index])
		all.Write(sum[:])
	}
	return &ebs.CompleteSnapshotInput{
		SnapshotId: &id, ChangedBlocksCount: aws.Int32(int32(len(blocks))), Checksum: aws.String(base64.StdEncoding.EncodeToString(all.Sum(nil))),
		ChecksumAlgorithm: types.ChecksumAlgorithmChecksumAlgorithmSha256, ChecksumAggregationMethod: types.ChecksumAggregationMethodChecksumAggregationLinear,
	}
}

// publish makes a completed snapshot of a GiB with these blocks.
func (s *shop) publish(t *testing.T, in ebs.StartSnapshotInput, blocks map[int][]byte) string {
	t.Helper()
	if in.VolumeSize == nil {
		in.VolumeSize = aws.Int64(1)
	}
	id := s.start(t, &in)
	for index, data := range blocks {
		s.put(t, id, index, data)
	}
	if _, err := s.ebs.CompleteSnapshot(t.Context(), completion(id, blocks)); err != nil {
		t.Fatal(err)
	}
	return id
}

// read reads all blocks of a snapshot as a client would: pages, tokens, checksums.
func (s *shop) read(t *testing.T, id string) map[int][]byte {
	t.Helper()
	blocks := map[int][]byte{}
	last := -1
	for p := ebs.NewListSnapshotBlocksPaginator(s.ebs, &ebs.ListSnapshotBlocksInput{SnapshotId: &id, MaxResults: aws.Int32(100)}); p.HasMorePages(); {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Blocks {
			if int(*b.BlockIndex) <= last || *page.BlockSize != BlockSize {
				t.Errorf("block %d of %d bytes comes after %d", *b.BlockIndex, *page.BlockSize, last)
			}
			last = int(*b.BlockIndex)
			out, err := s.ebs.GetSnapshotBlock(t.Context(), &ebs.GetSnapshotBlockInput{SnapshotId: &id, BlockIndex: b.BlockIndex, BlockToken: b.BlockToken})
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(out.BlockData)
			if err != nil || *out.Checksum != *sha(data) || *out.DataLength != BlockSize {
				t.Errorf("block %d: %d of %d bytes, checksum %s, %v", last, len(data), *out.DataLength, *out.Checksum, err)
			}
			blocks[last] = data
		}
	}
	return blocks
}

func TestSnapshotThroughTheAPI(t *testing.T) {
	s := newShop(t, Options{EBS: EBSOptions{Directory: t.TempDir()}})
	blocks := map[int][]byte{0: blockOf("boot"), 7: blockOf("same"), 8: blockOf("same"), 2047: blockOf("end")}
	parent := s.publish(t, ebs.StartSnapshotInput{
		Description: aws.String("a disk"), Tags: []types.Tag{{Key: aws.String("Name"), Value: aws.String("parent")}},
	}, blocks)
	if got := s.read(t, parent); !slices.Equal(sortedKeys(got), []int{0, 7, 8, 2047}) || !bytes.Equal(got[2047], blocks[2047]) || !bytes.Equal(got[8], blocks[7]) {
		t.Errorf("the parent has the blocks %v", sortedKeys(got))
	}
	if n, size := s.account.Kept(); n != 3 || size != 3*BlockSize {
		t.Errorf("%d blocks are kept in %d bytes, want 3: one is there twice", n, size)
	}
	change := map[int][]byte{7: blockOf("new"), 9: blockOf("more"), 8: blockOf("same")}
	child := s.publish(t, ebs.StartSnapshotInput{ParentSnapshotId: &parent}, change)
	got := s.read(t, child)
	if !slices.Equal(sortedKeys(got), []int{0, 7, 8, 9, 2047}) || !bytes.Equal(got[7], change[7]) || !bytes.Equal(got[0], blocks[0]) {
		t.Errorf("the child has the blocks %v", sortedKeys(got))
	}
	if is, _ := s.account.Images().Snapshot(child); is.State != SnapshotCompleted || is.Blocks != 5 || is.Written != 3 || is.Parent != parent {
		t.Errorf("the child is %+v", is)
	}
	if traffic := s.account.Traffic()["ebs:PutSnapshotBlock"]; traffic.Received != 7*BlockSize || s.account.Calls()["ebs:PutSnapshotBlock"] != 7 {
		t.Errorf("putting 7 blocks took %+v", traffic)
	}
	for _, id := range []string{parent, child} {
		if _, err := s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &id}); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := s.account.Kept(); n != 0 {
		t.Errorf("%d blocks are kept of snapshots that are deleted", n)
	}
}
