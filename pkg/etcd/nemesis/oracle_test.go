package nemesis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// judge returns what is wrong with a history: none of it needs to know what the faults were.
func judge(ops []operation, lives []*life) []string {
	var wrong []string
	wrong = append(wrong, revisions(ops)...)
	wrong = append(wrong, clusters(ops, lives)...)
	wrong = append(wrong, prefix(ops, lives)...)
	for _, l := range lives {
		wrong = append(wrong, linearizable(ops, lives, l)...)
	}
	return wrong
}

// enough reports whether something is wrong already, while clients go on: only what a call that has no answer yet cannot
// explain.
func (h *history) enough(r *records) bool {
	h.mu.Lock()
	ops := slices.Clone(h.ops)
	h.mu.Unlock()
	return len(revisions(ops)) > 0 || len(clusters(ops, r.lives())) > 0
}

// revisions finds writes that were acknowledged with one revision, and revisions that go against real time: a write that
// began after another was acknowledged has a greater one.
func revisions(ops []operation) []string {
	type told struct {
		at    time.Duration
		begin bool
		o     operation
	}
	var wrong []string
	seen := map[string]operation{}
	var order []told
	for _, o := range ops {
		if !o.write || !o.known {
			continue
		}
		id := fmt.Sprint(o.cluster, " ", o.revision)
		if other, twice := seen[id]; twice {
			wrong = append(wrong, fmt.Sprintf("revision %d was acknowledged twice: %s by %s, %s by %s", o.revision, other.value, other.by, o.value, o.by))
		}
		seen[id] = o
		order = append(order, told{o.call, true, o}, told{o.answer, false, o})
	}
	slices.SortFunc(order, func(a, b told) int { return int(a.at - b.at) })
	highest := map[string]int64{}
	before := map[string]int64{} // by the write: the highest revision that was acknowledged when it began
	for _, e := range order {
		key := e.o.value
		if e.begin {
			before[key] = highest[e.o.cluster]
			continue
		}
		if e.o.revision <= before[key] {
			wrong = append(wrong, fmt.Sprintf("%s got revision %d of %s after %d had been acknowledged", e.o.value, e.o.revision, e.o.by, before[key]))
		}
		highest[e.o.cluster] = max(highest[e.o.cluster], e.o.revision)
	}
	return wrong[:min(len(wrong), 5)]
}

// register is a key of etcd to porcupine: a write sets it, a read returns what was set last. The first state is not there,
// or in a restored cluster what is read first: whether that is right is prefix's to say.
func register(restored bool) porcupine.Model {
	const open = "?"
	first := ""
	if restored {
		first = open
	}
	return porcupine.Model{
		Init: func() any { return first },
		Step: func(state, input, output any) (bool, any) {
			o := input.(operation)
			if o.write {
				return true, o.value
			}
			read := output.(operation).value
			return read == state.(string) || state.(string) == open, read
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// linearizable asks porcupine whether each key of a cluster behaved as one register. What is not known of a write stays open until
// the end: it may take effect at any time, or never. The last reads of each key are part of the history, so that a write
// that was acknowledged and lost is found.
func linearizable(ops []operation, lives []*life, l *life) []string {
	var wrong []string
	for n := range keys {
		key := fmt.Sprint("k", n)
		seen := map[string]bool{}
		for _, o := range ops {
			if o.key == key && o.known && !o.write && of(o, lives) == l {
				seen[o.value] = true
			}
		}
		var calls []porcupine.Operation
		for _, o := range ops {
			// Nothing depends on a write that nobody saw and that may never have happened; a few of them take porcupine minutes.
			if o.key != key || o.known && of(o, lives) != l || !o.known && !seen[o.value] {
				continue
			}
			answer := int64(o.answer)
			if !o.known {
				answer = math.MaxInt64
			}
			calls = append(calls, porcupine.Operation{ClientId: o.client, Input: o, Output: o, Call: int64(o.call), Return: answer})
		}
		switch result := porcupine.CheckOperationsTimeout(register(l.from != nil), calls, 20*time.Second); result {
		case porcupine.Ok:
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("%s is not linearizable in epoch %d: %s", key, l.epoch, suspicion(ops, key, l.cluster)))
		default:
			wrong = append(wrong, fmt.Sprintf("%s: porcupine found no answer in 20 s (%d operations)", key, len(calls)))
		}
	}
	return wrong
}

// suspicion tells the end of a key's history, where a lost write is seen.
func suspicion(ops []operation, key, cluster string) string {
	var written, read operation
	for _, o := range ops {
		if o.cluster != cluster {
			continue
		}
		if o.key == key && o.known && o.write && o.answer > written.answer {
			written = o
		}
		if o.key == key && o.known && !o.write && o.answer > read.answer {
			read = o
		}
	}
	return fmt.Sprintf("last acknowledged write %q at %.3f s (revision %d), last read %q at %.3f s (revision %d)",
		written.value, written.answer.Seconds(), written.revision, read.value, read.call.Seconds(), read.revision)
}

// listed is a line of etcd's list of members.
type listed struct {
	ID      string `json:"ID"`
	Name    string `json:"name"`
	Learner bool   `json:"isLearner"`
}

// errEnough is whole's answer where what is looked for was found.
var errEnough = errors.New("what is wrong was found already")

// whole waits until every seat has exactly one machine whose etcd is a voter, answers linearizable reads, and has the
// same data as the others. It returns what is missing when something is broken, when for a minute no agent has taken a step
// and no client got an answer, or when the time is over: on a machine with other work to do, all that is slow goes on.
func (w *world) whole(ctx context.Context, seats []string, conf *tls.Config) error {
	const idle, all = time.Minute, 5 * time.Minute
	transport := &http.Transport{TLSClientConfig: conf, TLSHandshakeTimeout: 2 * time.Second}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	var err error
	began, last, taken := time.Now(), time.Now(), w.steps.Load()
	for time.Since(began) < all && time.Since(last) < idle && !w.isBroken() {
		if err = w.looksWhole(ctx, c, seats); err == nil || sleep(ctx, 100*time.Millisecond) != nil {
			return err
		}
		if w.enough != nil && w.enough() {
			return errEnough
		}
		if now := w.steps.Load(); now != taken {
			taken, last = now, time.Now()
		}
	}
	return err
}

func (w *world) looksWhole(ctx context.Context, c *http.Client, seats []string) error {
	hashes, at := map[string]string{}, "0"
	for _, seat := range seats {
		m := w.serving(seat)
		if m == nil {
			return fmt.Errorf("no etcd runs for %s", seat)
		}
		url := "https://" + m.address.String() + ":" + clientPort
		var list struct {
			Header  header   `json:"header"`
			Members []listed `json:"members"`
		}
		if err := call(ctx, c, url+"/v3/cluster/member/list", map[string]any{"linearizable": true}, &list); err != nil {
			return fmt.Errorf("%s: %w", seat, err)
		}
		var voters []string
		for _, line := range list.Members {
			if line.Learner {
				return fmt.Errorf("%s sees a learner: %+v", seat, list.Members)
			}
			voters = append(voters, line.Name)
		}
		slices.Sort(voters)
		if !slices.Equal(voters, seats) {
			return fmt.Errorf("%s sees the voters %v, not %v", seat, voters, seats)
		}
		i := slices.IndexFunc(list.Members, func(line listed) bool { return line.ID == list.Header.Member })
		if i < 0 || list.Members[i].Name != seat {
			return fmt.Errorf("what answers for %s is another member: %+v", seat, list)
		}
		var hash struct {
			Hash      any    `json:"hash"`
			Revision  string `json:"hash_revision"`
			Compacted string `json:"compact_revision"`
		}
		if err := call(ctx, c, url+"/v3/maintenance/hashkv", map[string]any{"revision": at}, &hash); err != nil {
			return fmt.Errorf("hash of %s at revision %s: %w", seat, at, err)
		}
		at = hash.Revision // clients go on writing: the others are asked about the same revision
		hashes[fmt.Sprint(list.Header.Cluster, " ", hash.Compacted, " ", hash.Hash)] = seat
	}
	if len(hashes) != 1 {
		return fmt.Errorf("the members have different data: %v", hashes)
	}
	return nil
}

// serving is the machine of a seat whose etcd runs; nil if there is none, or more than one.
func (w *world) serving(seat string) *machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found *machine
	for _, m := range w.machines {
		if m.seat == seat && m.running() != nil {
			if found != nil {
				return nil
			}
			found = m
		}
	}
	return found
}
