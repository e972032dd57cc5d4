package awsfake

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// How long the tokens last ("Frequently asked questions for EBS direct APIs").
const (
	blockTokenLife = 7 * 24 * time.Hour
	pageTokenLife  = time.Hour
)

// The bounds of a page; fewer than 100 are answered with 100 (the same page of the user guide).
const (
	leastBlocks = 100
	mostBlocks  = 10_000
	someBlocks  = 1000
)

// seal makes a token from a number and the time when the token ends, bound to a purpose.
func seal(number int, ends time.Time, what string) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(number))
	raw = binary.BigEndian.AppendUint64(raw, uint64(ends.Unix()))
	sum := sha256.Sum256(fmt.Appendf(raw[:16:16], "awsfake %s", what))
	return base64.StdEncoding.EncodeToString(append(raw, sum[:16]...))
}

// unseal returns a token's number; false if the token has another purpose or has ended.
func unseal(token string, now time.Time, what string) (int, bool) {
	raw, err := base64.StdEncoding.DecodeString(token)
	if err != nil || len(raw) != 32 {
		return 0, false
	}
	number, ends := int(binary.BigEndian.Uint64(raw)), time.Unix(int64(binary.BigEndian.Uint64(raw[8:])), 0)
	sum := sha256.Sum256(fmt.Appendf(raw[:16:16], "awsfake %s", what))
	return number, bytes.Equal(sum[:16], raw[16:]) && now.Before(ends)
}

// readable is a snapshot that can be read: a completed one.
func (d directAPI) readable(id string) (Snapshot, *content, error) {
	s, err := d.find(id)
	if err == nil && s.State != SnapshotCompleted {
		err = invalid(badSnapshot, "The snapshot %s can't be read: it is %s, not completed.", id, s.State)
	}
	return s, d.contents[id], err
}

// window returns the first block and the size of the page that a call asks for.
func (d directAPI) window(c *call, what string) (from, size int, err error) {
	query := c.Query
	size = someBlocks
	if text := query.Get("maxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n > mostBlocks || n < 1 {
			return 0, 0, invalid(badParameter, "The maximum of results must be between %d and %d, is %s.", leastBlocks, mostBlocks, text)
		}
		size = max(n, leastBlocks)
	}
	if token := query.Get("pageToken"); token != "" {
		from, ok := unseal(token, d.now(), "page "+what)
		if !ok {
			return 0, 0, invalid(badPage, "The page token is not valid, or it has expired.")
		}
		return from, size, nil
	}
	if text := query.Get("startingBlockIndex"); text != "" {
		if from, err = strconv.Atoi(text); err != nil || from < 0 {
			return 0, 0, invalid(badParameter, "The starting block index %s is not valid.", text)
		}
	}
	return from, size, nil
}

// listed is a page of blocks; a nil NextToken is the last page.
type listed struct {
	Blocks                any `json:",omitempty"`
	ExpiryTime            float64
	VolumeSize, BlockSize int
	NextToken             *string
}

func (d directAPI) listing(s Snapshot) (listed, time.Time) {
	ends := d.now().Add(blockTokenLife).Truncate(time.Second)
	return listed{ExpiryTime: float64(ends.Unix()), VolumeSize: s.Size, BlockSize: BlockSize}, ends
}

func blockToken(id string, index int, ends time.Time) *string {
	token := seal(index, ends, "block of "+id)
	return &token
}

func (d directAPI) listBlocks(c *call) (any, error) {
	id := c.pathPart(1)
	s, content, err := d.readable(id)
	if err != nil {
		return nil, err
	}
	from, size, err := d.window(c, id)
	if err != nil {
		return nil, err
	}
	type wire struct {
		BlockIndex int
		BlockToken *string
	}
	out, ends := d.listing(s)
	blocks := []wire{}
	for _, index := range content.indexes() {
		if index < from {
			continue
		}
		if len(blocks) == size {
			token := seal(index, d.now().Add(pageTokenLife), "page "+id)
			out.NextToken = &token
			break
		}
		blocks = append(blocks, wire{index, blockToken(id, index, ends)})
	}
	out.Blocks = blocks
	return restReply{status: http.StatusOK, document: out}, nil
}

func (d directAPI) getBlock(c *call) (any, error) {
	id := c.pathPart(1)
	_, content, err := d.readable(id)
	if err != nil {
		return nil, err
	}
	index, err := strconv.Atoi(c.pathPart(3))
	if err != nil {
		return nil, invalid(badBlock, "The block index %s is not valid.", c.pathPart(3))
	}
	of, ok := unseal(c.Query.Get("blockToken"), d.now(), "block of "+id)
	b, has := content.blocks[index]
	if !ok || of != index || !has {
		return nil, invalid(badToken, "The block token is not that of block %d of snapshot %s, or it has expired.", index, id)
	}
	data := make([]byte, BlockSize)
	if err := d.account.regional.blocks.read(b.sum, data); err != nil {
		return nil, err
	}
	return restReply{status: http.StatusOK, data: data, header: map[string]string{
		"x-amz-Data-Length": strconv.Itoa(BlockSize), "x-amz-Checksum": base64.StdEncoding.EncodeToString(b.sum[:]), "x-amz-Checksum-Algorithm": "SHA256",
	}}, nil
}
