package vnet

import (
	"sync"
	"time"
)

// Query is one question that the resolver has answered.
type Query struct {
	Time    time.Time `json:"time"`
	Machine string    `json:"machine"`
	Name    string    `json:"name"`
	Type    string    `json:"type"`
	Proto   string    `json:"proto"`
	// Rcode is as dig prints it ("NOERROR", "NXDOMAIN"); Answers are the records of the answer.
	Rcode   string `json:"rcode"`
	Answers int    `json:"answers"`
}

// maxQueries is how many of the last questions are kept.
const maxQueries = 10_000

// queryLog keeps the last questions, and counts all of them.
type queryLog struct {
	mu    sync.Mutex
	last  []Query
	next  int // where the oldest is, once there are maxQueries
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

// Queries lists the last 10,000 questions that machines have asked, the oldest first.
func (n *Network) Queries() []Query {
	l := &n.queries
	l.mu.Lock()
	defer l.mu.Unlock()
	return append(append([]Query(nil), l.last[l.next:]...), l.last[:l.next]...)
}

// Asked is how often a machine has asked for a name (absolute, in lower case, with its final dot), in whatever type.
func (n *Network) Asked(machine, name string) int64 {
	l := &n.queries
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[[2]string{machine, name}]
}
