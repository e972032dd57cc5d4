package vnet

import (
	"sync"
	"time"
)

// Query is a DNS question that was answered.
type Query struct {
	Time    time.Time `json:"time"`
	Machine string    `json:"machine"`
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Proto   string    `json:"proto"`
	// Rcode is the response code as dig prints it ("NOERROR", "NXDOMAIN"); Answers are the answer's records.
	Rcode   string `json:"rcode"`
	Answers int    `json:"answers"`
}

// maxQueries is the number of queries that are kept.
const maxQueries = 10_000

// queryLog keeps the last queries, and counts all of them.
type queryLog struct {
	mu    sync.Mutex
	last  []Query
	next  int // index of the oldest, once there are maxQueries
	count map[[2]string]int64
}

func (l *queryLog) add(q Question, proto, rcode string, answers int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.count == nil {
		l.count = map[[2]string]int64{}
	}
	l.count[[2]string{q.Machine, q.Name}]++
	entry := Query{time.Now(), q.Machine, q.Name, q.Type, proto, rcode, answers}
	if len(l.last) < maxQueries {
		l.last = append(l.last, entry)
		return
	}
	l.last[l.next] = entry
	l.next = (l.next + 1) % maxQueries
}

// Queries returns the last 10,000 queries of machines, the oldest first.
func (n *Network) Queries() []Query {
	l := &n.queries
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]Query(nil), l.last[l.next:]...), l.last[:l.next]...)
}

// Asked returns how often a machine has queried a name (absolute, in lower case, with its final dot), for any type.
func (n *Network) Asked(machine, name string) int64 {
	l := &n.queries
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[[2]string{machine, name}]
}
