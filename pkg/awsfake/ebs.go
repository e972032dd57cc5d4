package awsfake

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The modelled quotas of the EBS direct APIs ("Amazon EBS endpoints and quotas"). AWS has the rates for each region of an
// account; here all regions share them. Options.Rates replaces them.
const (
	pendingSnapshots = 100
	snapshotTags     = 50
	maxVolumeGiB     = 65_536
	maxToken         = 64 // "Ensure idempotency in StartSnapshot API requests"; the API's model says 255
	maxDescription   = 255
)

func ebsRates() map[string]float64 {
	return map[string]float64{
		"ebs:StartSnapshot": 10, "ebs:PutSnapshotBlock": 1000, "ebs:CompleteSnapshot": 10,
		"ebs:GetSnapshotBlock": 1000, "ebs:ListSnapshotBlocks": 50,
	}
}

// The reasons of a ValidationException and of the other errors (API reference, "Errors").
const (
	badKey       = "INVALID_CUSTOMER_KEY"
	badPage      = "INVALID_PAGE_TOKEN"
	badBlock     = "INVALID_BLOCK"
	badToken     = "INVALID_BLOCK_TOKEN"
	badSnapshot  = "INVALID_SNAPSHOT_ID"
	badTag       = "INVALID_TAG"
	badParameter = "INVALID_PARAMETER_VALUE"
	badSize      = "INVALID_VOLUME_SIZE"
	badEncoding  = "INVALID_CONTENT_ENCODING"
)

func invalid(reason, format string, args ...any) error {
	e := refuse("ValidationException", format, args...)
	e.Reason = reason
	return e
}

// directAPI is a region's EBS direct APIs (2019-11-02).
//
// Modelled: blocks of 512 KiB with their SHA-256, the count and the checksum of all at the end, client tokens, the
// timeout of a snapshot without writes, parents and their encryption, keys, tags, tokens of blocks
// that end after seven days and of pages that end after an hour, quotas. A snapshot is read once it is completed.
// Where AWS says nothing, awsfake is strict: a completed snapshot cannot be completed again, a child cannot be smaller
// than its parent, and pages are short. Not modelled: Outposts, local snapshots, and the snapshots of others.
type directAPI struct{ *Images }

func (d directAPI) actions() map[string]func(*call) (any, error) {
	return map[string]func(*call) (any, error){
		"StartSnapshot": d.start, "PutSnapshotBlock": d.putBlock, "CompleteSnapshot": d.complete,
		"GetSnapshotBlock": d.getBlock, "ListSnapshotBlocks": d.listBlocks,
	}
}

func (d directAPI) serve(c *call) (any, error) {
	return d.actions()[c.Action](c) // the protocol knows no others
}

type startInput struct {
	VolumeSize       int
	ParentSnapshotId string
	Tags             []struct{ Key, Value string }
	Description      string
	ClientToken      string
	Encrypted        *bool
	KmsKeyArn        string
	Timeout          *int
}

type startOutput struct {
	SnapshotId, OwnerId, Status string
	StartTime                   float64
	VolumeSize, BlockSize       int
	Description                 string              `json:",omitempty"`
	ParentSnapshotId            string              `json:",omitempty"`
	KmsKeyArn                   string              `json:",omitempty"`
	Tags                        []map[string]string `json:",omitempty"`
	SseType                     string
}

func (d directAPI) start(c *call) (any, error) {
	var in startInput
	decoder := json.NewDecoder(bytes.NewReader(c.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, invalid(badParameter, "reading the request (a field that awsfake does not know is an error): %v", err)
	}
	if err := d.checkStart(&in); err != nil {
		return nil, err
	}
	before := in
	before.ClientToken = ""
	fingerprint, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	if made, ok := d.starts[in.ClientToken]; ok && in.ClientToken != "" {
		if made.call != string(fingerprint) {
			return nil, &Error{Status: http.StatusConflict, Code: "ConflictException", Message: "The request uses the same client token as a previous, but non-identical request."}
		}
		s, _ := d.snapshots.get(made.id)
		return d.started(s), nil
	}
	s, err := d.begin(in)
	if err != nil {
		return nil, err
	}
	d.starts[in.ClientToken] = tokened{string(fingerprint), s.ID}
	return d.started(s), nil
}

// begin starts a snapshot that the rules of the call allow.
func (d directAPI) begin(in startInput) (Snapshot, error) {
	s := Snapshot{Description: in.Description, Parent: in.ParentSnapshotId, Size: in.VolumeSize, Tags: map[string]string{}}
	for _, tag := range in.Tags {
		s.Tags[tag.Key] = tag.Value
	}
	var from *content
	if in.ParentSnapshotId == "" {
		key, ok := d.keyOf(in.Encrypted != nil && *in.Encrypted, in.KmsKeyArn)
		if !ok {
			return s, invalid(badKey, "The KMS key %s does not exist, is not enabled or is not yours to use.", in.KmsKeyArn)
		}
		s.Key = key
	} else {
		parent, err := d.parent(in)
		if err != nil {
			return s, err
		}
		s.Key, from = parent.Key, d.contents[parent.ID]
	}
	if d.pending() >= pendingSnapshots {
		return s, &Error{Status: http.StatusPaymentRequired, Code: "ServiceQuotaExceededException", Reason: "DEPENDENCY_SERVICE_QUOTA_EXCEEDED",
			Message: "You have reached the limit for pending snapshots."}
	}
	s = d.add(s, from)
	content := d.contents[s.ID]
	content.timeout = time.Hour
	if in.Timeout != nil {
		content.timeout = time.Duration(*in.Timeout) * time.Minute
	}
	d.after(content.timeout, func() { d.expire(s.ID) })
	return s, nil
}

func (d directAPI) started(s Snapshot) restReply {
	out := startOutput{
		SnapshotId: s.ID, OwnerId: owner, Status: SnapshotPending, StartTime: float64(s.Started.UnixMilli()) / 1000, VolumeSize: s.Size,
		BlockSize: BlockSize, Description: s.Description, ParentSnapshotId: s.Parent, KmsKeyArn: s.Key, SseType: "none",
	}
	if s.Key != "" {
		out.SseType = "sse-kms"
	}
	for _, key := range sortedKeys(s.Tags) {
		out.Tags = append(out.Tags, map[string]string{"Key": key, "Value": s.Tags[key]})
	}
	return restReply{status: http.StatusCreated, document: out}
}

// pending counts the snapshots that are not completed yet.
func (d directAPI) pending() (n int) {
	for id := range d.contents {
		if s, _ := d.snapshots.get(id); s.State == SnapshotPending {
			n++
		}
	}
	return n
}

// checkStart checks the parameters of StartSnapshot.
func (d directAPI) checkStart(in *startInput) error {
	switch {
	case in.VolumeSize < 1 || in.VolumeSize > maxVolumeGiB:
		return invalid(badSize, "The volume size must be between 1 and %d GiB, is %d.", maxVolumeGiB, in.VolumeSize)
	case in.Timeout != nil && (*in.Timeout < 10 || *in.Timeout > 4320):
		return invalid(badParameter, "The timeout must be between 10 and 4320 minutes, is %d.", *in.Timeout)
	case len(in.Description) > maxDescription:
		return invalid(badParameter, "The description must have at most %d characters, has %d.", maxDescription, len(in.Description))
	case !clientToken.MatchString(in.ClientToken):
		return invalid(badParameter, "The client token must have at most %d ASCII characters and no space.", maxToken)
	case in.ParentSnapshotId != "" && in.Encrypted != nil:
		return invalid(badParameter, "Encrypted and ParentSnapshotId can't be specified in the same request.")
	case in.ParentSnapshotId != "" && in.KmsKeyArn != "":
		return invalid(badParameter, "KmsKeyArn and ParentSnapshotId can't be specified in the same request.")
	case in.KmsKeyArn != "" && (in.Encrypted == nil || !*in.Encrypted):
		return invalid(badParameter, "KmsKeyArn takes Encrypted to be true.")
	case in.KmsKeyArn != "" && !keyARNPattern.MatchString(in.KmsKeyArn):
		return invalid(badKey, "%s is not the ARN of a key.", in.KmsKeyArn)
	case len(in.Tags) > snapshotTags:
		return invalid(badTag, "A snapshot can have %d tags, there are %d.", snapshotTags, len(in.Tags))
	}
	seen := map[string]bool{}
	for _, tag := range in.Tags {
		if tag.Key == "" || len(tag.Key) > 127 || len(tag.Value) > 255 || strings.HasPrefix(strings.ToLower(tag.Key), "aws:") || seen[tag.Key] {
			return invalid(badTag, "The tag %q is not valid: a key has 1 to 127 characters, is there once and does not begin with aws:, a value has up to 255.", tag.Key)
		}
		seen[tag.Key] = true
	}
	return nil
}

var (
	clientToken     = regexp.MustCompile(`^[\x21-\x7e]{0,` + strconv.Itoa(maxToken) + `}$`)
	keyARNPattern   = regexp.MustCompile(`^arn:aws[a-z-]*:kms:.*:[0-9]{12}:key/.*$`)
	snapshotPattern = regexp.MustCompile(`^snap-([0-9a-f]{8}|[0-9a-f]{17})$`)
)

// parent is the snapshot that another is started from.
func (d directAPI) parent(in startInput) (Snapshot, error) {
	s, err := d.find(in.ParentSnapshotId)
	switch {
	case err != nil:
		return s, err
	case s.State != SnapshotCompleted:
		return s, invalid(badSnapshot, "The parent snapshot %s is %s, not completed.", s.ID, s.State)
	case in.VolumeSize < s.Size:
		return s, invalid(badSize, "The volume size %d is smaller than the %d GiB of the parent snapshot %s.", in.VolumeSize, s.Size, s.ID)
	}
	return s, nil
}

// find is a snapshot that the direct APIs know of.
func (d directAPI) find(id string) (Snapshot, error) {
	if !snapshotPattern.MatchString(id) {
		return Snapshot{}, invalid(badSnapshot, "The snapshot ID '%s' is not valid.", id)
	}
	s, ok := d.snapshot(id)
	if !ok || d.now().Before(s.Started.Add(d.options.Known)) {
		return s, &Error{Status: http.StatusNotFound, Code: "ResourceNotFoundException", Reason: "SNAPSHOT_NOT_FOUND", Message: "The snapshot '" + id + "' does not exist."}
	}
	return s, nil
}

// open is a snapshot that can be written to.
func (d directAPI) open(id string) (Snapshot, *content, error) {
	s, err := d.find(id)
	if err != nil {
		return s, nil, err
	}
	content := d.contents[id]
	if s.State != SnapshotPending || content.sealed || content.timeout == 0 {
		return s, nil, invalid(badSnapshot, "The snapshot %s can't be written to: it is %s.", id, s.State)
	}
	return s, content, nil
}

func (d directAPI) putBlock(c *call) (any, error) {
	s, content, err := d.open(c.pathPart(1))
	if err != nil {
		return nil, err
	}
	index, err := strconv.Atoi(c.pathPart(3))
	if err != nil || index < 0 || index >= s.Size*blocksPerGiB {
		return nil, invalid(badBlock, "The block index %s is not one of the %d blocks of snapshot %s.", c.pathPart(3), s.Size*blocksPerGiB, s.ID)
	}
	sum := c.Signature.body
	text := base64.StdEncoding.EncodeToString(sum[:])
	progress, err := strconv.Atoi(c.header("x-amz-Progress"))
	switch {
	case c.header("Content-Encoding") != "":
		return nil, invalid(badEncoding, "The content encoding %s is not supported.", c.header("Content-Encoding"))
	case c.header("x-amz-Data-Length") != strconv.Itoa(BlockSize):
		return nil, invalid(badParameter, "The data length must be %d, is %q.", BlockSize, c.header("x-amz-Data-Length"))
	case c.header("x-amz-Checksum-Algorithm") != "SHA256":
		return nil, invalid(badParameter, "The checksum algorithm must be SHA256, is %q.", c.header("x-amz-Checksum-Algorithm"))
	case c.header("x-amz-Progress") != "" && (err != nil || progress < 0 || progress > 100):
		return nil, invalid(badParameter, "The progress must be between 0 and 100, is %q.", c.header("x-amz-Progress"))
	case len(c.Body) != BlockSize:
		return nil, invalid(badBlock, "The block has %d bytes, not %d.", len(c.Body), BlockSize)
	case c.header("x-amz-Checksum") != text:
		return nil, invalid(badBlock, "The checksum of the block is %s, not %s.", text, c.header("x-amz-Checksum"))
	}
	if err := d.account.regional.blocks.put(sum, c.Body); err != nil {
		return nil, err
	}
	if old, ok := content.blocks[index]; ok {
		d.account.regional.blocks.release(old.sum)
	}
	content.blocks[index] = block{sum, content.writer}
	content.touched = d.now()
	return restReply{status: http.StatusCreated, header: map[string]string{"x-amz-Checksum": text, "x-amz-Checksum-Algorithm": "SHA256"}}, nil
}

// complete seals a snapshot. The count and the checksum cover the blocks that were put into this snapshot, not those
// of its parent.
func (d directAPI) complete(c *call) (any, error) {
	s, content, err := d.open(c.pathPart(2))
	if err != nil {
		return nil, err
	}
	all, n := sha256.New(), 0
	for _, index := range content.indexes() {
		if b := content.blocks[index]; b.writer == content.writer {
			all.Write(b.sum[:])
			n++
		}
	}
	// awslabs/coldsnap hashes the digests as bytes; the API reference only says "string".
	text := base64.StdEncoding.EncodeToString(all.Sum(nil))
	given, algorithm, method := c.header("x-amz-Checksum"), c.header("x-amz-Checksum-Algorithm"), c.header("x-amz-Checksum-Aggregation-Method")
	switch {
	case c.header("x-amz-ChangedBlocksCount") != strconv.Itoa(n):
		return nil, invalid(badParameter, "%d blocks were written to snapshot %s, the changed blocks count is %q.", n, s.ID, c.header("x-amz-ChangedBlocksCount"))
	case given == "" && (algorithm != "" || method != ""):
		return nil, invalid(badParameter, "There is no checksum for its algorithm and its aggregation method.")
	case given != "" && (algorithm != "SHA256" || method != "LINEAR"):
		return nil, invalid(badParameter, "The checksum algorithm must be SHA256, is %q; the aggregation method must be LINEAR, is %q.", algorithm, method)
	case given != "" && given != text:
		return nil, invalid(badParameter, "The checksum of all written blocks is %s, not %s.", text, given)
	}
	content.sealed = true
	status := SnapshotPending
	if d.options.Seal == 0 {
		d.finish(s.ID, SnapshotCompleted)
		status = SnapshotCompleted
	} else {
		d.after(d.options.Seal, func() { d.finish(s.ID, SnapshotCompleted) })
	}
	return restReply{status: http.StatusAccepted, document: map[string]string{"Status": status}}, nil
}
