package cloud

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ebs"
	"github.com/aws/aws-sdk-go-v2/service/ebs/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
)

var _ ami.Blocks = (*Client)(nil)

// snapshotTimeout is how long AWS keeps a snapshot to which nothing is written, in minutes: long enough to go on the next
// morning, and then it is gone by itself. 4320 is the most.
const snapshotTimeout = 24 * 60

// maxPage is the most blocks in one answer.
const maxPage = 10_000

// Start starts a snapshot.
func (c *Client) Start(ctx context.Context, s ami.StartRequest) (string, error) {
	in := &ebs.StartSnapshotInput{
		VolumeSize: &s.Volume, ClientToken: &s.Token, Description: &s.Description, Timeout: aws.Int32(snapshotTimeout),
	}
	if s.Parent != "" {
		in.ParentSnapshotId = &s.Parent
	}
	if s.Key != ami.NoKey {
		in.Encrypted = aws.Bool(true)
		if s.Key != ami.DefaultKey {
			in.KmsKeyArn = &s.Key
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		in.Tags = append(in.Tags, types.Tag{Key: &key, Value: aws.String(s.Tags[key])})
	}
	out, err := c.blocks.StartSnapshot(ctx, in)
	if err != nil {
		return "", explain("starting a snapshot", startError(s, err))
	}
	if size := aws.ToInt32(out.BlockSize); size != ami.BlockSize {
		return "", fmt.Errorf("starting a snapshot: %s has blocks of %d bytes, and this version writes %d",
			aws.ToString(out.SnapshotId), size, ami.BlockSize)
	}
	return aws.ToString(out.SnapshotId), nil
}

// startError tells apart what the publisher decides by.
func startError(s ami.StartRequest, err error) error {
	var refusal smithy.APIError
	switch {
	case !errors.As(err, &refusal) || refusal.ErrorFault() == smithy.FaultServer:
		return err
	case s.Parent != "" && hasCode(err, "ValidationException", "ResourceNotFoundException", "AccessDeniedException"):
		// Denied: the policy of `hardtack image policy` without --parents allows only a snapshot without a parent.
		return fmt.Errorf("%w: %w: %w", ami.ErrRefused, ami.ErrParent, err)
	}
	return fmt.Errorf("%w: %w", ami.ErrRefused, err)
}

// Put writes a block.
func (c *Client) Put(ctx context.Context, snapshot string, block int32, content []byte, digest ami.Digest) error {
	_, err := c.blocks.PutSnapshotBlock(ctx, &ebs.PutSnapshotBlockInput{
		SnapshotId: &snapshot, BlockIndex: &block, BlockData: bytes.NewReader(content), DataLength: aws.Int32(ami.BlockSize),
		Checksum: aws.String(text(digest)), ChecksumAlgorithm: types.ChecksumAlgorithmChecksumAlgorithmSha256,
	}, c.waitForSnapshot)
	return explain(fmt.Sprintf("writing block %d of snapshot %s", block, snapshot), writeError(err))
}

// Complete completes a snapshot.
func (c *Client) Complete(ctx context.Context, snapshot string, blocks int, checksum ami.Digest) error {
	_, err := c.blocks.CompleteSnapshot(ctx, &ebs.CompleteSnapshotInput{
		SnapshotId: &snapshot, ChangedBlocksCount: aws.Int32(int32(blocks)), Checksum: aws.String(text(checksum)),
		ChecksumAlgorithm:         types.ChecksumAlgorithmChecksumAlgorithmSha256,
		ChecksumAggregationMethod: types.ChecksumAggregationMethodChecksumAggregationLinear,
	}, c.waitForSnapshot)
	if err = writeError(err); errors.Is(err, ami.ErrDamaged) {
		err = fmt.Errorf("what AWS has is not what was sent: %w", err)
	}
	return explain("completing snapshot "+snapshot, err)
}

// waitForSnapshot retries a call that does not find a snapshot which was just started.
func (c *Client) waitForSnapshot(o *ebs.Options) {
	o.Retryer = retry.AddWithErrorCodes(o.Retryer, "ResourceNotFoundException")
}

// writeError tells apart what the publisher decides by. Which reason a checksum has that does not agree is not
// documented: either of these may be it, and to send a block again that is wrong for good does no harm.
func writeError(err error) error {
	var invalid *types.ValidationException
	var missing *types.ResourceNotFoundException
	switch {
	case errors.As(err, &missing):
		return fmt.Errorf("%w: %w", ami.ErrGone, err)
	case !errors.As(err, &invalid):
		return err
	case invalid.Reason == types.ValidationExceptionReasonInvalidBlock, invalid.Reason == types.ValidationExceptionReasonInvalidParameterValue:
		return fmt.Errorf("%w: %w", ami.ErrDamaged, err)
	case invalid.Reason == types.ValidationExceptionReasonInvalidSnapshotId,
		invalid.Reason == types.ValidationExceptionReasonWriteRequestTimeout:
		return fmt.Errorf("%w: %w", ami.ErrGone, err)
	}
	return err
}

// List lists the blocks of a completed snapshot.
func (c *Client) List(ctx context.Context, snapshot string) ([]ami.StoredBlock, error) {
	var listed []ami.StoredBlock
	pages := ebs.NewListSnapshotBlocksPaginator(c.blocks, &ebs.ListSnapshotBlocksInput{SnapshotId: &snapshot, MaxResults: aws.Int32(maxPage)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("listing the blocks of snapshot "+snapshot, err)
		}
		if size := aws.ToInt32(out.BlockSize); size != ami.BlockSize {
			return nil, fmt.Errorf("listing the blocks of snapshot %s: they have %d bytes", snapshot, size)
		}
		for _, b := range out.Blocks {
			listed = append(listed, ami.StoredBlock{Block: aws.ToInt32(b.BlockIndex), Token: aws.ToString(b.BlockToken)})
		}
	}
	return listed, nil
}

// Get reads a block, and again where it was damaged on its way.
func (c *Client) Get(ctx context.Context, snapshot string, block ami.StoredBlock, content []byte) (err error) {
	for range 3 {
		if err = c.get(ctx, snapshot, block, content); !errors.Is(err, ami.ErrDamaged) {
			break
		}
	}
	return explain(fmt.Sprintf("reading block %d of snapshot %s", block.Block, snapshot), err)
}

func (c *Client) get(ctx context.Context, snapshot string, block ami.StoredBlock, content []byte) error {
	out, err := c.blocks.GetSnapshotBlock(ctx, &ebs.GetSnapshotBlockInput{SnapshotId: &snapshot, BlockIndex: &block.Block, BlockToken: &block.Token})
	if err != nil {
		return err
	}
	defer out.BlockData.Close()
	if _, err := io.ReadFull(out.BlockData, content[:ami.BlockSize]); err != nil {
		return fmt.Errorf("%w: %w", ami.ErrDamaged, err)
	}
	if got := text(sha256.Sum256(content[:ami.BlockSize])); got != aws.ToString(out.Checksum) {
		return fmt.Errorf("%w: its checksum is %s, and AWS says %s", ami.ErrDamaged, got, aws.ToString(out.Checksum))
	}
	return nil
}

func text(d ami.Digest) string { return base64.StdEncoding.EncodeToString(d[:]) }
