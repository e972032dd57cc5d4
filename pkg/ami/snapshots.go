package ami

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

	"github.com/hardtack/packer-plugin-hardtack/pkg/publish"
)

var _ publish.Snapshots = (*Client)(nil)

// silence is how long AWS keeps a snapshot to which nothing is written, in minutes: long enough to go on the next
// morning, and then it is gone by itself. 4320 is the most.
const silence = 24 * 60

// page is the most blocks in one answer.
const page = 10_000

// Start begins a snapshot.
func (c *Client) Start(ctx context.Context, s publish.Start) (string, error) {
	in := &ebs.StartSnapshotInput{
		VolumeSize: &s.Volume, ClientToken: &s.Token, Description: &s.Description, Timeout: aws.Int32(silence),
	}
	if s.Parent != "" {
		in.ParentSnapshotId = &s.Parent
	}
	if s.Key != publish.NoKey {
		in.Encrypted = aws.Bool(true)
		if s.Key != publish.DefaultKey {
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
	if size := aws.ToInt32(out.BlockSize); size != publish.BlockSize {
		return "", fmt.Errorf("starting a snapshot: %s has blocks of %d bytes, and this version writes %d",
			aws.ToString(out.SnapshotId), size, publish.BlockSize)
	}
	return aws.ToString(out.SnapshotId), nil
}

// startError tells apart what the publisher decides by.
func startError(s publish.Start, err error) error {
	var refusal smithy.APIError
	switch {
	case !errors.As(err, &refusal) || refusal.ErrorFault() == smithy.FaultServer:
		return err
	case s.Parent != "" && is(err, "ValidationException", "ResourceNotFoundException"):
		return fmt.Errorf("%w: %w: %w", publish.ErrRefused, publish.ErrParent, err)
	}
	return fmt.Errorf("%w: %w", publish.ErrRefused, err)
}

// Put writes a block.
func (c *Client) Put(ctx context.Context, snapshot string, block int32, content []byte, digest publish.Digest) error {
	_, err := c.blocks.PutSnapshotBlock(ctx, &ebs.PutSnapshotBlockInput{
		SnapshotId: &snapshot, BlockIndex: &block, BlockData: bytes.NewReader(content), DataLength: aws.Int32(publish.BlockSize),
		Checksum: aws.String(text(digest)), ChecksumAlgorithm: types.ChecksumAlgorithmChecksumAlgorithmSha256,
	}, c.waitForSnapshot)
	return explain(fmt.Sprintf("writing block %d of snapshot %s", block, snapshot), writeError(err))
}

// Complete ends the writing.
func (c *Client) Complete(ctx context.Context, snapshot string, blocks int, checksum publish.Digest) error {
	_, err := c.blocks.CompleteSnapshot(ctx, &ebs.CompleteSnapshotInput{
		SnapshotId: &snapshot, ChangedBlocksCount: aws.Int32(int32(blocks)), Checksum: aws.String(text(checksum)),
		ChecksumAlgorithm:         types.ChecksumAlgorithmChecksumAlgorithmSha256,
		ChecksumAggregationMethod: types.ChecksumAggregationMethodChecksumAggregationLinear,
	}, c.waitForSnapshot)
	if err = writeError(err); errors.Is(err, publish.ErrDamaged) {
		err = fmt.Errorf("what AWS has is not what was sent: %w", err)
	}
	return explain("completing snapshot "+snapshot, err)
}

// waitForSnapshot has a call made again that says of a snapshot which was just started that there is none.
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
		return fmt.Errorf("%w: %w", publish.ErrGone, err)
	case !errors.As(err, &invalid):
		return err
	case invalid.Reason == types.ValidationExceptionReasonInvalidBlock, invalid.Reason == types.ValidationExceptionReasonInvalidParameterValue:
		return fmt.Errorf("%w: %w", publish.ErrDamaged, err)
	case invalid.Reason == types.ValidationExceptionReasonInvalidSnapshotId,
		invalid.Reason == types.ValidationExceptionReasonWriteRequestTimeout:
		return fmt.Errorf("%w: %w", publish.ErrGone, err)
	}
	return err
}

// List lists the blocks of a completed snapshot.
func (c *Client) List(ctx context.Context, snapshot string) ([]publish.Listed, error) {
	var listed []publish.Listed
	pages := ebs.NewListSnapshotBlocksPaginator(c.blocks, &ebs.ListSnapshotBlocksInput{SnapshotId: &snapshot, MaxResults: aws.Int32(page)})
	for pages.HasMorePages() {
		out, err := pages.NextPage(ctx)
		if err != nil {
			return nil, explain("listing the blocks of snapshot "+snapshot, err)
		}
		if size := aws.ToInt32(out.BlockSize); size != publish.BlockSize {
			return nil, fmt.Errorf("listing the blocks of snapshot %s: they have %d bytes", snapshot, size)
		}
		for _, b := range out.Blocks {
			listed = append(listed, publish.Listed{Block: aws.ToInt32(b.BlockIndex), Token: aws.ToString(b.BlockToken)})
		}
	}
	return listed, nil
}

// Get reads a block, and again where it was damaged on its way.
func (c *Client) Get(ctx context.Context, snapshot string, block publish.Listed, content []byte) (err error) {
	for range 3 {
		if err = c.get(ctx, snapshot, block, content); !errors.Is(err, publish.ErrDamaged) {
			break
		}
	}
	return explain(fmt.Sprintf("reading block %d of snapshot %s", block.Block, snapshot), err)
}

func (c *Client) get(ctx context.Context, snapshot string, block publish.Listed, content []byte) error {
	out, err := c.blocks.GetSnapshotBlock(ctx, &ebs.GetSnapshotBlockInput{SnapshotId: &snapshot, BlockIndex: &block.Block, BlockToken: &block.Token})
	if err != nil {
		return err
	}
	defer out.BlockData.Close()
	if _, err := io.ReadFull(out.BlockData, content[:publish.BlockSize]); err != nil {
		return fmt.Errorf("%w: %w", publish.ErrDamaged, err)
	}
	if got := text(sha256.Sum256(content[:publish.BlockSize])); got != aws.ToString(out.Checksum) {
		return fmt.Errorf("%w: its checksum is %s, and AWS says %s", publish.ErrDamaged, got, aws.ToString(out.Checksum))
	}
	return nil
}

func text(d publish.Digest) string { return base64.StdEncoding.EncodeToString(d[:]) }
