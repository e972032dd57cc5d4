// Package gateway is a client of one etcd member, by the JSON that etcd answers beside gRPC: membership, maintenance, and
// the lock of a replacement.
//
// The routes are those of etcd's api/etcdserverpb/rpc.proto, of 3.6. In its JSON 64-bit numbers are text, bytes are
// base64, and a field with its zero value is left out.
package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// limit is the most that an answer may have, but for a snapshot.
const limit = 4 << 20

// Config is where a member is, and with what it is asked.
type Config struct {
	// URL is a client URL of the member, https://HOST:PORT.
	URL string
	// TLS has the client's certificate and whom it trusts. It is copied.
	TLS *tls.Config
	// Dial connects; nil is net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Client asks one member. Every call takes as long as its context allows.
type Client struct {
	url  string
	http *http.Client
}

// handshake is how long a member may take for TLS. An etcd that waits for the others listens and does not answer, and the end of
// a question does not end the connection that is being made for it: Close does, or this.
const handshake = 5 * time.Second

// New returns a client of a member. Close ends its connections.
func New(c Config) *Client {
	return &Client{url: strings.TrimSuffix(c.URL, "/"), http: &http.Client{Transport: &http.Transport{
		TLSClientConfig: c.TLS.Clone(), DialContext: c.Dial, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, TLSHandshakeTimeout: handshake,
	}}}
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Error is an answer of etcd that is no success.
type Error struct {
	Method  string
	URL     string
	Status  int
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("etcd at %s answers %s with %d: %s", e.URL, e.Method, e.Status, e.Message)
}

// Is compares with the errors of this package, by etcd's own words (api/v3rpc/rpctypes/error.go).
func (e *Error) Is(target error) bool {
	switch target {
	case member.ErrUnhealthy:
		return strings.Contains(e.Message, "unhealthy cluster")
	case member.ErrNoSpace:
		return strings.Contains(e.Message, "database space exceeded")
	case member.ErrNotReady:
		return strings.Contains(e.Message, "in sync with leader")
	default:
		return false
	}
}

// number is a 64-bit number, which is text in JSON.
type number uint64

func (n *number) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if v, err := strconv.ParseUint(text, 10, 64); err == nil {
		*n = number(v)
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a number of 64 bits: %w", text, err)
	}
	*n = number(v)
	return nil
}

func (n number) MarshalJSON() ([]byte, error) { return json.Marshal(strconv.FormatUint(uint64(n), 10)) }

type header struct {
	Cluster  number `json:"cluster_id"`
	Member   number `json:"member_id"`
	Revision number `json:"revision"`
}

type memberJSON struct {
	ID      number   `json:"ID"`
	Name    string   `json:"name"`
	Peers   []string `json:"peerURLs"`
	Clients []string `json:"clientURLs"`
	Learner bool     `json:"isLearner"`
}

// Members returns the list of members by a linearizable read: a quorum has agreed that it is the newest.
func (c *Client) Members(ctx context.Context) (etcd.List, error) {
	var answer struct {
		Header  header       `json:"header"`
		Members []memberJSON `json:"members"`
	}
	if err := c.call(ctx, "/v3/cluster/member/list", map[string]any{"linearizable": true}, &answer); err != nil {
		return etcd.List{}, err
	}
	list := etcd.List{ClusterID: etcd.ID(answer.Header.Cluster)}
	for _, m := range answer.Members {
		one := etcd.Member{ID: etcd.ID(m.ID), Name: m.Name, Learner: m.Learner, Started: len(m.Clients) > 0}
		if len(m.Peers) > 0 {
			one.PeerURL = m.Peers[0]
		}
		list.Members = append(list.Members, one)
	}
	return list, nil
}

// AddLearner adds a member at a peer URL, without a vote, and returns its ID.
func (c *Client) AddLearner(ctx context.Context, peerURL string) (etcd.ID, error) {
	var answer struct {
		Member memberJSON `json:"member"`
	}
	err := c.call(ctx, "/v3/cluster/member/add", map[string]any{"peerURLs": []string{peerURL}, "isLearner": true}, &answer)
	return etcd.ID(answer.Member.ID), err
}

// Remove removes a member. That it is none is no error.
func (c *Client) Remove(ctx context.Context, id etcd.ID) error {
	err := c.call(ctx, "/v3/cluster/member/remove", map[string]any{"ID": number(id)}, nil)
	var e *Error
	if errors.As(err, &e) && strings.Contains(e.Message, "member not found") {
		return nil
	}
	return err
}

// Promote gives a learner its vote. Its error matches member.ErrNotReady while it lacks entries.
func (c *Client) Promote(ctx context.Context, id etcd.ID) error {
	return c.call(ctx, "/v3/cluster/member/promote", map[string]any{"ID": number(id)}, nil)
}

// Update changes the peer URL of a member.
func (c *Client) Update(ctx context.Context, id etcd.ID, peerURL string) error {
	return c.call(ctx, "/v3/cluster/member/update", map[string]any{"ID": number(id), "peerURLs": []string{peerURL}}, nil)
}

// Status asks the member about itself. It needs no quorum.
func (c *Client) Status(ctx context.Context) (member.Status, error) {
	var a struct {
		Header  header   `json:"header"`
		Version string   `json:"version"`
		Size    number   `json:"dbSize"`
		InUse   number   `json:"dbSizeInUse"`
		Quota   number   `json:"dbSizeQuota"`
		Leader  number   `json:"leader"`
		Index   number   `json:"raftIndex"`
		Applied number   `json:"raftAppliedIndex"`
		Learner bool     `json:"isLearner"`
		Errors  []string `json:"errors"`
	}
	if err := c.call(ctx, "/v3/maintenance/status", struct{}{}, &a); err != nil {
		return member.Status{}, err
	}
	return member.Status{
		ID: etcd.ID(a.Header.Member), ClusterID: etcd.ID(a.Header.Cluster), Leader: etcd.ID(a.Leader), Learner: a.Learner, Version: a.Version,
		Index: uint64(a.Index), Applied: uint64(a.Applied), Revision: int64(a.Header.Revision), Size: int64(a.Size), InUse: int64(a.InUse), Quota: int64(a.Quota), Alarms: alarms(a.Header.Member, a.Errors),
	}, nil
}

// alarms are those of a member among what it says is wrong: "memberID:1 alarm:NOSPACE ". The route of the alarms would ask
// the whole cluster.
func alarms(id number, errs []string) (names []string) {
	for _, text := range errs {
		fields := strings.Fields(text)
		if len(fields) == 2 && fields[0] == "memberID:"+strconv.FormatUint(uint64(id), 10) {
			if name, ok := strings.CutPrefix(fields[1], "alarm:"); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// Compact forgets what was before the newest revision, and returns when that is done in the database. Watches of what was
// before end: their clients read again.
func (c *Client) Compact(ctx context.Context) error {
	said, err := c.Status(ctx)
	if err != nil {
		return err
	}
	err = c.call(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(said.Revision, 10), "physical": true}, nil)
	var e *Error
	if errors.As(err, &e) && strings.Contains(e.Message, "required revision has been compacted") {
		return nil
	}
	return err
}

// Disarm ends the alarm NOSPACE of a member. That it has none is no error.
func (c *Client) Disarm(ctx context.Context, id etcd.ID) error {
	return c.call(ctx, "/v3/maintenance/alarm", map[string]any{"action": "DEACTIVATE", "memberID": number(id), "alarm": etcd.NoSpace}, nil)
}

// Defragment gives the free space of the member's database back. It answers nobody meanwhile.
func (c *Client) Defragment(ctx context.Context) error {
	return c.call(ctx, "/v3/maintenance/defragment", struct{}{}, nil)
}

// Read makes a linearizable read of a key that need not exist: it works only while the member has a quorum.
func (c *Client) Read(ctx context.Context) error {
	return c.call(ctx, "/v3/kv/range", map[string]any{"key": text(etcd.LockKey), "count_only": true}, nil)
}

// Lock takes etcd.LockKey for a holder, until the lease that it returns ends. Its error matches member.ErrHeld if another one
// has it.
func (c *Client) Lock(ctx context.Context, holder string, ttl time.Duration) (member.Lease, error) {
	var granted struct {
		ID number `json:"ID"`
	}
	if err := c.call(ctx, "/v3/lease/grant", map[string]any{"TTL": number(ttl / time.Second)}, &granted); err != nil {
		return 0, err
	}
	key := text(etcd.LockKey)
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	err := c.call(ctx, "/v3/kv/txn", map[string]any{
		"compare": []any{map[string]any{"key": key, "target": "CREATE", "result": "EQUAL", "createRevision": "0"}},
		"success": []any{map[string]any{"requestPut": map[string]any{"key": key, "value": text(holder), "lease": granted.ID}}},
	}, &answer)
	if err == nil && !answer.Succeeded {
		err = member.ErrHeld
	}
	if err != nil {
		return 0, errors.Join(err, c.Unlock(ctx, member.Lease(granted.ID)))
	}
	return member.Lease(granted.ID), nil
}

// Renew lets a lock last another time of its lease. Its error matches member.ErrHeld if the lease has ended.
func (c *Client) Renew(ctx context.Context, lease member.Lease) error {
	var answer struct {
		Result struct {
			TTL number `json:"TTL"`
		} `json:"result"`
	}
	if err := c.call(ctx, "/v3/lease/keepalive", map[string]any{"ID": number(lease)}, &answer); err != nil {
		return err
	}
	if answer.Result.TTL == 0 {
		return fmt.Errorf("the lease of %s has ended: %w", etcd.LockKey, member.ErrHeld)
	}
	return nil
}

// Unlock ends a lock with its lease. That the lease has ended before is no error.
func (c *Client) Unlock(ctx context.Context, lease member.Lease) error {
	err := c.call(ctx, "/v3/lease/revoke", map[string]any{"ID": number(lease)}, nil)
	var e *Error
	if errors.As(err, &e) && strings.Contains(e.Message, "lease not found") {
		return nil
	}
	return err
}

// Snapshot writes the member's database as of now, followed by its SHA-256 (32 bytes), as `etcdutl snapshot` reads it.
func (c *Client) Snapshot(ctx context.Context, w io.Writer) error {
	const path = "/v3/maintenance/snapshot"
	body, err := c.post(ctx, path, struct{}{})
	if err != nil {
		return err
	}
	defer body.Close()
	d := json.NewDecoder(body)
	for {
		var part struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		err := d.Decode(&part)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the snapshot of etcd at %s: %w", c.url, err)
		case part.Error != nil:
			return &Error{Method: path, URL: c.url, Status: http.StatusOK, Message: part.Error.Message}
		}
		if _, err := w.Write(part.Result.Blob); err != nil {
			return fmt.Errorf("writing the snapshot of etcd at %s: %w", c.url, err)
		}
	}
}

func text(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// call sends a request and reads the answer into into, if that is not nil.
func (c *Client) call(ctx context.Context, path string, request, into any) error {
	body, err := c.post(ctx, path, request)
	if err != nil {
		return err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, limit))
	if err != nil {
		return fmt.Errorf("reading the answer of etcd at %s to %s: %w", c.url, path, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("the answer of etcd at %s to %s: %w", c.url, path, err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, request any) (io.ReadCloser, error) {
	data, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encoding a request to %s: %w", path, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("a request to etcd at %s: %w", c.url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking etcd: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	e := &Error{Method: path, URL: c.url, Status: resp.StatusCode}
	said, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, errors.Join(e, err)
	}
	var told struct {
		Message string `json:"message"`
		Error   string `json:"error"`
	}
	if err := json.Unmarshal(said, &told); err != nil || told.Message+told.Error == "" {
		told.Message = strings.TrimSpace(string(said))
	}
	e.Message = told.Message
	if e.Message == "" {
		e.Message = told.Error
	}
	return nil, e
}
