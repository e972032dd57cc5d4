package awsfake

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
)

// said is an error of the EBS direct APIs as "code reason"; a call that worked is "ok".
func said(err error) string {
	var api smithy.APIError
	if err == nil {
		return "ok"
	}
	if !errors.As(err, &api) {
		return err.Error()
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if v := reflect.Indirect(reflect.ValueOf(e)); v.Kind() == reflect.Struct {
			if reason := v.FieldByName("Reason"); reason.Kind() == reflect.String && reason.String() != "" {
				return api.ErrorCode() + " " + reason.String()
			}
		}
	}
	return api.ErrorCode()
}

func wantSaid(t *testing.T, what string, err error, want string) {
	t.Helper()
	if got := said(err); got != want {
		t.Errorf("%s: %s, want %s (%v)", what, got, want, err)
	}
}

const absent = "snap-0123456789abcdef0"

func tagsNamed(n int) []types.Tag {
	var tags []types.Tag
	for i := range n {
		tags = append(tags, types.Tag{Key: aws.String(fmt.Sprint("k", i)), Value: aws.String("v")})
	}
	return tags
}

func TestStartSnapshotRules(t *testing.T) {
	s := newShop(t, Options{})
	key := s.account.SSM().AddKey("alias/mine")
	plain := s.publish(t, ebs.StartSnapshotInput{VolumeSize: aws.Int64(2)}, nil)
	secret := s.publish(t, ebs.StartSnapshotInput{Encrypted: aws.Bool(true), KmsKeyArn: &key}, map[int][]byte{1: blockOf("x")})
	pending := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	one, two := aws.Int64(1), aws.Int64(2)
	yes, no := aws.Bool(true), aws.Bool(false)
	const parameter = "ValidationException INVALID_PARAMETER_VALUE"
	tests := []struct {
		name string
		in   ebs.StartSnapshotInput
		want string
	}{
		{"of 1 GiB", ebs.StartSnapshotInput{VolumeSize: one}, "ok"},
		{"of 0 GiB", ebs.StartSnapshotInput{VolumeSize: aws.Int64(0)}, "ValidationException INVALID_VOLUME_SIZE"},
		{"of 64 TiB", ebs.StartSnapshotInput{VolumeSize: aws.Int64(65536)}, "ok"},
		{"of more", ebs.StartSnapshotInput{VolumeSize: aws.Int64(65537)}, "ValidationException INVALID_VOLUME_SIZE"},
		{"with 10 minutes", ebs.StartSnapshotInput{VolumeSize: one, Timeout: aws.Int32(10)}, "ok"},
		{"with 9 minutes", ebs.StartSnapshotInput{VolumeSize: one, Timeout: aws.Int32(9)}, parameter},
		{"with 3 days", ebs.StartSnapshotInput{VolumeSize: one, Timeout: aws.Int32(4320)}, "ok"},
		{"with more", ebs.StartSnapshotInput{VolumeSize: one, Timeout: aws.Int32(4321)}, parameter},
		{"with a long description", ebs.StartSnapshotInput{VolumeSize: one, Description: aws.String(strings.Repeat("x", 256))}, parameter},
		{"with a long token", ebs.StartSnapshotInput{VolumeSize: one, ClientToken: aws.String(strings.Repeat("x", 65))}, parameter},
		{"with a token of words", ebs.StartSnapshotInput{VolumeSize: one, ClientToken: aws.String("a b")}, parameter},
		{"with 50 tags", ebs.StartSnapshotInput{VolumeSize: one, Tags: tagsNamed(50)}, "ok"},
		{"with 51 tags", ebs.StartSnapshotInput{VolumeSize: one, Tags: tagsNamed(51)}, "ValidationException INVALID_TAG"},
		{"with a tag of AWS", ebs.StartSnapshotInput{VolumeSize: one, Tags: []types.Tag{{Key: aws.String("AWS:x"), Value: aws.String("")}}}, "ValidationException INVALID_TAG"},
		{"with a tag twice", ebs.StartSnapshotInput{VolumeSize: one, Tags: append(tagsNamed(1), tagsNamed(1)...)}, "ValidationException INVALID_TAG"},
		{"encrypted", ebs.StartSnapshotInput{VolumeSize: one, Encrypted: yes}, "ok"},
		{"encrypted by a key", ebs.StartSnapshotInput{VolumeSize: one, Encrypted: yes, KmsKeyArn: &key}, "ok"},
		{"a key and not encrypted", ebs.StartSnapshotInput{VolumeSize: one, Encrypted: no, KmsKeyArn: &key}, parameter},
		{"a key alone", ebs.StartSnapshotInput{VolumeSize: one, KmsKeyArn: &key}, parameter},
		{"another key", ebs.StartSnapshotInput{VolumeSize: one, Encrypted: yes, KmsKeyArn: aws.String(key[:len(key)-1])}, "ValidationException INVALID_CUSTOMER_KEY"},
		{"an alias", ebs.StartSnapshotInput{VolumeSize: one, Encrypted: yes, KmsKeyArn: aws.String("alias/mine")}, "ValidationException INVALID_CUSTOMER_KEY"},
		{"a child", ebs.StartSnapshotInput{VolumeSize: two, ParentSnapshotId: &plain}, "ok"},
		{"a larger child", ebs.StartSnapshotInput{VolumeSize: aws.Int64(3), ParentSnapshotId: &plain}, "ok"},
		{"a smaller child", ebs.StartSnapshotInput{VolumeSize: one, ParentSnapshotId: &plain}, "ValidationException INVALID_VOLUME_SIZE"},
		{"a child that says encrypted", ebs.StartSnapshotInput{VolumeSize: two, ParentSnapshotId: &plain, Encrypted: no}, parameter},
		{"a child with a key", ebs.StartSnapshotInput{VolumeSize: two, ParentSnapshotId: &secret, KmsKeyArn: &key}, parameter},
		{"the child of a pending one", ebs.StartSnapshotInput{VolumeSize: two, ParentSnapshotId: &pending}, "ValidationException INVALID_SNAPSHOT_ID"},
		{"the child of none", ebs.StartSnapshotInput{VolumeSize: one, ParentSnapshotId: aws.String(absent)}, "ResourceNotFoundException SNAPSHOT_NOT_FOUND"},
		{"the child of no snapshot", ebs.StartSnapshotInput{VolumeSize: one, ParentSnapshotId: aws.String("ami-1")}, "ValidationException INVALID_SNAPSHOT_ID"},
	}
	for _, tt := range tests {
		_, err := s.ebs.StartSnapshot(t.Context(), &tt.in)
		wantSaid(t, tt.name, err, tt.want)
	}
	child := s.start(t, &ebs.StartSnapshotInput{VolumeSize: one, ParentSnapshotId: &secret})
	if is, _ := s.account.Images().Snapshot(child); is.Key != key || is.Blocks != 1 || is.Written != 0 {
		t.Errorf("the child of an encrypted snapshot is %+v", is)
	}
}

func TestClientTokens(t *testing.T) {
	s := newShop(t, Options{})
	in := ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), ClientToken: aws.String("disk-1"), Description: aws.String("a")}
	first, again := s.start(t, &in), s.start(t, &in)
	if first != again || len(s.account.Images().Snapshots()) != 1 {
		t.Errorf("the same token made %s and %s", first, again)
	}
	in.Description = aws.String("b")
	_, err := s.ebs.StartSnapshot(t.Context(), &in)
	wantSaid(t, "another call", err, "ConflictException")
	if _, err := s.ec2.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &first}); err != nil {
		t.Fatal(err)
	}
	in.Description = aws.String("a")
	if dead := s.start(t, &in); dead != first {
		t.Errorf("the token of a deleted snapshot made %s, want %s as before", dead, first)
	}
	_, err = s.ebs.PutSnapshotBlock(t.Context(), putOf(first, 0, blockOf("x")))
	wantSaid(t, "writing to it", err, "ResourceNotFoundException SNAPSHOT_NOT_FOUND")
}

func TestBlockRules(t *testing.T) {
	s := newShop(t, Options{})
	id := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	done := s.publish(t, ebs.StartSnapshotInput{}, nil)
	with := func(f func(*ebs.PutSnapshotBlockInput)) *ebs.PutSnapshotBlockInput {
		in := putOf(id, 3, blockOf("x"))
		f(in)
		return in
	}
	const parameter, bad = "ValidationException INVALID_PARAMETER_VALUE", "ValidationException INVALID_BLOCK"
	tests := []struct {
		name string
		in   *ebs.PutSnapshotBlockInput
		want string
	}{
		{"a block", with(func(*ebs.PutSnapshotBlockInput) {}), "ok"},
		{"again", with(func(*ebs.PutSnapshotBlockInput) {}), "ok"},
		{"the last", putOf(id, 2047, blockOf("x")), "ok"},
		{"one after it", putOf(id, 2048, blockOf("x")), bad},
		{"of zeros", putOf(id, 5, make([]byte, BlockSize)), "ok"},
		{"too short", putOf(id, 3, blockOf("x")[1:]), parameter},
		{"shorter than it says", with(func(in *ebs.PutSnapshotBlockInput) { in.BlockData = bytes.NewReader(blockOf("x")[1:]) }), bad},
		{"with another's checksum", with(func(in *ebs.PutSnapshotBlockInput) { in.Checksum = sha(blockOf("y")) }), bad},
		{"with a checksum in hexadecimal", with(func(in *ebs.PutSnapshotBlockInput) { in.Checksum = aws.String("00") }), bad},
		{"with another algorithm", with(func(in *ebs.PutSnapshotBlockInput) { in.ChecksumAlgorithm = "SHA512" }), parameter},
		{"with 101 %", with(func(in *ebs.PutSnapshotBlockInput) { in.Progress = aws.Int32(101) }), parameter},
		{"with 100 %", with(func(in *ebs.PutSnapshotBlockInput) { in.Progress = aws.Int32(100) }), "ok"},
		{"of a completed snapshot", putOf(done, 0, blockOf("x")), "ValidationException INVALID_SNAPSHOT_ID"},
		{"of none", putOf(absent, 0, blockOf("x")), "ResourceNotFoundException SNAPSHOT_NOT_FOUND"},
		{"of no snapshot", putOf("snap-x", 0, blockOf("x")), "ValidationException INVALID_SNAPSHOT_ID"},
	}
	for _, tt := range tests {
		_, err := s.ebs.PutSnapshotBlock(t.Context(), tt.in)
		wantSaid(t, tt.name, err, tt.want)
	}
	blocks := map[int][]byte{3: blockOf("x"), 5: make([]byte, BlockSize), 2047: blockOf("x")}
	count := completion(id, blocks)
	count.ChangedBlocksCount = aws.Int32(4)
	other := completion(id, map[int][]byte{3: blockOf("y"), 5: blockOf("x"), 2047: blockOf("x")})
	bare := completion(id, blocks)
	bare.ChecksumAggregationMethod = ""
	for name, in := range map[string]*ebs.CompleteSnapshotInput{"another count": count, "another checksum": other, "no method": bare} {
		_, err := s.ebs.CompleteSnapshot(t.Context(), in)
		wantSaid(t, "completing with "+name, err, parameter)
	}
	_, err := s.ebs.CompleteSnapshot(t.Context(), &ebs.CompleteSnapshotInput{SnapshotId: &id, ChangedBlocksCount: aws.Int32(3)})
	wantSaid(t, "completing without a checksum", err, "ok")
	_, err = s.ebs.CompleteSnapshot(t.Context(), completion(id, blocks))
	wantSaid(t, "completing twice", err, "ValidationException INVALID_SNAPSHOT_ID")
}

func TestReadingRules(t *testing.T) {
	s := newShop(t, Options{})
	blocks := map[int][]byte{}
	for index := range 150 {
		blocks[index*2] = blockOf(fmt.Sprint("block ", index))
	}
	id := s.publish(t, ebs.StartSnapshotInput{}, blocks)
	other := s.publish(t, ebs.StartSnapshotInput{}, blocks)
	pending := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), ParentSnapshotId: &id})
	list := func(in ebs.ListSnapshotBlocksInput) (*ebs.ListSnapshotBlocksOutput, error) {
		if in.SnapshotId == nil {
			in.SnapshotId = &id
		}
		return s.ebs.ListSnapshotBlocks(t.Context(), &in)
	}
	first, err := list(ebs.ListSnapshotBlocksInput{MaxResults: aws.Int32(5)})
	if err != nil || len(first.Blocks) != 100 || first.NextToken == nil || !first.ExpiryTime.Equal(s.clock.Now().Add(7*24*time.Hour).Truncate(time.Second)) {
		t.Fatalf("a page of 5 has %d blocks, %v", len(first.Blocks), err)
	}
	rest, err := list(ebs.ListSnapshotBlocksInput{NextToken: first.NextToken, StartingBlockIndex: aws.Int32(0)})
	if err != nil || len(rest.Blocks) != 50 || *rest.Blocks[0].BlockIndex != 200 || rest.NextToken != nil {
		t.Errorf("the rest has %d blocks, %v", len(rest.Blocks), err)
	}
	if from, err := list(ebs.ListSnapshotBlocksInput{StartingBlockIndex: aws.Int32(297)}); err != nil || len(from.Blocks) != 1 || *from.Blocks[0].BlockIndex != 298 {
		t.Errorf("from 297 on there are %d blocks, %v", len(from.Blocks), err)
	}
	_, err = list(ebs.ListSnapshotBlocksInput{SnapshotId: &other, NextToken: first.NextToken})
	wantSaid(t, "another's page", err, "ValidationException INVALID_PAGE_TOKEN")
	_, err = list(ebs.ListSnapshotBlocksInput{MaxResults: aws.Int32(10001)})
	wantSaid(t, "10,001 blocks", err, "ValidationException INVALID_PARAMETER_VALUE")
	_, err = list(ebs.ListSnapshotBlocksInput{SnapshotId: &pending})
	wantSaid(t, "a pending snapshot", err, "ValidationException INVALID_SNAPSHOT_ID")
	get := func(snapshot string, index int32, token *string) error {
		_, err := s.ebs.GetSnapshotBlock(t.Context(), &ebs.GetSnapshotBlockInput{SnapshotId: &snapshot, BlockIndex: &index, BlockToken: token})
		return err
	}
	token := first.Blocks[1].BlockToken
	wantSaid(t, "a block", get(id, 2, token), "ok")
	for name, err := range map[string]error{"another block's token": get(id, 4, token), "another snapshot's token": get(other, 2, token), "no token": get(id, 2, aws.String("AAAA"))} {
		wantSaid(t, name, err, "ValidationException INVALID_BLOCK_TOKEN")
	}
	s.pass(61 * time.Minute)
	_, err = list(ebs.ListSnapshotBlocksInput{NextToken: first.NextToken})
	wantSaid(t, "a page an hour later", err, "ValidationException INVALID_PAGE_TOKEN")
	wantSaid(t, "a block an hour later", get(id, 2, token), "ok")
	s.pass(7 * 24 * time.Hour)
	wantSaid(t, "a block a week later", get(id, 2, token), "ValidationException INVALID_BLOCK_TOKEN")
}

func TestSnapshotTimeout(t *testing.T) {
	s := newShop(t, Options{EBS: EBSOptions{Known: 3 * time.Second, Seal: 5 * time.Second}})
	id := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), Timeout: aws.Int32(10)})
	_, err := s.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, blockOf("x")))
	wantSaid(t, "before it is known", err, "ResourceNotFoundException SNAPSHOT_NOT_FOUND")
	for range 3 {
		s.pass(9 * time.Minute)
		s.put(t, id, 0, blockOf("x"))
	}
	s.pass(10 * time.Minute)
	_, err = s.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, blockOf("x")))
	wantSaid(t, "ten minutes later", err, "ValidationException INVALID_SNAPSHOT_ID")
	if is, _ := s.account.Images().Snapshot(id); is.State != SnapshotError || is.Blocks != 0 {
		t.Errorf("the snapshot is %+v", is)
	}
	slow := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1), Timeout: aws.Int32(10)})
	s.pass(3 * time.Second)
	out, err := s.ebs.CompleteSnapshot(t.Context(), completion(slow, nil))
	if err != nil || out.Status != types.StatusPending {
		t.Errorf("%+v, %v", out, err)
	}
	_, err = s.ebs.PutSnapshotBlock(t.Context(), putOf(slow, 0, blockOf("x")))
	wantSaid(t, "after it was sealed", err, "ValidationException INVALID_SNAPSHOT_ID")
	_, err = s.ec2.RegisterImage(t.Context(), imageOf("too-early", slow))
	wantCode(t, err, "IncorrectState", "Snapshot is in invalid state - pending")
	s.pass(5 * time.Second)
	if is, _ := s.account.Images().Snapshot(slow); is.State != SnapshotCompleted {
		t.Errorf("the snapshot is %+v", is)
	}
	s.pass(time.Hour)
	if is, _ := s.account.Images().Snapshot(slow); is.State != SnapshotCompleted {
		t.Errorf("after its timeout the snapshot is %+v", is)
	}
}

func TestSnapshotQuotas(t *testing.T) {
	s := newShop(t, Options{Rates: map[string]float64{"ebs:StartSnapshot": 0}})
	for range pendingSnapshots {
		s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	}
	_, err := s.ebs.StartSnapshot(t.Context(), &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	wantSaid(t, "one more than may be pending", err, "ServiceQuotaExceededException DEPENDENCY_SERVICE_QUOTA_EXCEEDED")
	var throttled int
	for _, is := range s.account.Images().Snapshots()[:15] {
		if _, err := s.ebs.CompleteSnapshot(t.Context(), completion(is.ID, nil)); err != nil {
			wantSaid(t, "completing fast", err, "RequestThrottledException ACCOUNT_THROTTLED")
			throttled++
		}
	}
	if throttled != 5 {
		t.Errorf("%d of 15 completions at once were throttled, want 5", throttled)
	}
}

func TestFaultsOfBlocks(t *testing.T) {
	faults := &Script{}
	s := newShop(t, Options{Faults: faults})
	faults.Add("PutSnapshotBlock", Fault{Refuse: &Error{Status: 500, Code: "InternalServerException"}}, Fault{LoseReply: true})
	id := s.start(t, &ebs.StartSnapshotInput{VolumeSize: aws.Int64(1)})
	data := blockOf("x")
	_, err := s.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, data))
	wantSaid(t, "before it is carried out", err, "InternalServerException")
	blocks := func() int {
		is, _ := s.account.Images().Snapshot(id)
		return is.Blocks
	}
	if blocks() != 0 {
		t.Error("a refused call wrote a block")
	}
	_, err = s.ebs.PutSnapshotBlock(t.Context(), putOf(id, 0, data))
	if err == nil || blocks() != 1 {
		t.Errorf("a lost reply: %v, %d blocks", err, blocks())
	}
	if _, err := s.ebs.CompleteSnapshot(t.Context(), completion(id, map[int][]byte{0: data})); err != nil {
		t.Fatal(err)
	}
	if got := s.read(t, id); !bytes.Equal(got[0], data) {
		t.Error("the block is not read back")
	}
}
