package nemesis

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/etcdtest"
)

// tlsFiles are one certificate that every member and every client has. The certificates of real members are tested with
// real machines; here names and addresses change too fast to be certified.
type tlsFiles struct {
	cert, key string
	client    *tls.Config
}

func newTLS(t *testing.T, dir string) tlsFiles {
	t.Helper()
	var names []string
	for _, seat := range slices.Concat(seats, spare) {
		names = append(names, strings.TrimSuffix(memberName(seat), "."))
	}
	files, client := etcdtest.Certificate(t, dir, names)
	client.ServerName = etcdtest.Name // etcd's server is asked by address, and answers with the certificate of its name
	return tlsFiles{cert: files.Certificate, key: files.Key, client: client}
}

// header is what etcd says with every answer. Numbers are text in its JSON.
type header struct {
	Cluster  string `json:"cluster_id"`
	Member   string `json:"member_id"`
	Revision string `json:"revision"`
}

// operation is one call of a client, with what it knows of it. Times are since the world began.
type operation struct {
	client       int
	write        bool
	key, value   string // of a read, the value is what was read; "" is a key that is not there
	call, answer time.Duration
	known        bool // a write without it may have happened, then or later
	cluster      string
	revision     int64
	modified     int64  // of a read, the revision in which the key was written; 0 if it is not there
	by           string // the member that answered
}

// history is what all clients of a schedule did.
type history struct {
	mu  sync.Mutex
	ops []operation
}

func (h *history) add(o operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

const keys = 6

// client writes and reads until ctx ends. It asks any machine of the cluster, old ones too.
func (w *world) client(ctx context.Context, number int, h *history, conf *tls.Config, rng *mrand.Rand) {
	transport := &http.Transport{TLSClientConfig: conf, MaxIdleConnsPerHost: 2, ResponseHeaderTimeout: time.Second, TLSHandshakeTimeout: time.Second}
	defer transport.CloseIdleConnections()
	for n := 0; ctx.Err() == nil; n++ {
		time.Sleep(time.Duration(2+rng.IntN(60)) * time.Millisecond) // a call costs the members 2 ms of CPU
		m := w.pick(rng)
		if m == nil {
			continue
		}
		o := operation{client: number, write: rng.IntN(5) < 3, key: fmt.Sprint("k", rng.IntN(keys))}
		if o.write {
			o.value = fmt.Sprintf("%d.%d", number, n)
		}
		if w.do(ctx, &http.Client{Transport: transport, Timeout: 1500 * time.Millisecond}, m, &o) {
			h.add(o)
		}
	}
}

// pick is a machine whose etcd may answer.
func (w *world) pick(rng *mrand.Rand) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	var up []*machine
	for _, m := range w.machines {
		if m.running() != nil {
			up = append(up, m)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[rng.IntN(len(up))]
}

// do carries out an operation, and reports whether it belongs into the history: a read without an answer says nothing,
// and a write that reached nobody has not happened.
func (w *world) do(ctx context.Context, c *http.Client, m *machine, o *operation) bool {
	request := map[string]string{"key": base64.StdEncoding.EncodeToString([]byte(o.key))}
	path := "/v3/kv/range"
	if o.write {
		path, request["value"] = "/v3/kv/put", base64.StdEncoding.EncodeToString([]byte(o.value))
	}
	var answer struct {
		Header header `json:"header"`
		KVs    []struct {
			Value    string `json:"value"`
			Modified string `json:"mod_revision"`
		} `json:"kvs"`
	}
	o.call = time.Since(w.began)
	err := call(ctx, c, "https://"+m.address.String()+":"+clientPort+path, request, &answer)
	o.answer = time.Since(w.began)
	if err != nil {
		return o.write && !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.EHOSTUNREACH)
	}
	w.steps.Add(1)
	if o.write {
		m.writes.Add(1)
	}
	o.known, o.cluster, o.by = true, answer.Header.Cluster, m.seat
	o.revision, _ = strconv.ParseInt(answer.Header.Revision, 10, 64)
	if !o.write && len(answer.KVs) == 1 {
		value, err := base64.StdEncoding.DecodeString(answer.KVs[0].Value)
		if err != nil {
			w.breach("%s answers what is no base64: %q", m.seat, answer.KVs[0].Value)
		}
		o.value = string(value)
		o.modified, _ = strconv.ParseInt(answer.KVs[0].Modified, 10, 64)
	}
	return true
}

// call sends JSON to etcd's gateway and reads its answer.
func call(ctx context.Context, c *http.Client, url string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, data)
	}
	return json.Unmarshal(data, answer)
}
