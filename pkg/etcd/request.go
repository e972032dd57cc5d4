package etcd

import (
	"strconv"
	"time"
)

// Verb is what a person asks the machine of the leader for.
type Verb string

// The verbs. A machine answers one that it does not know with an error.
const (
	// AskDefrag: give the free space of every member's database back; after the alarm NOSPACE, compact first and end it.
	AskDefrag Verb = "defrag"
	// AskRemove: remove Request.Member from the cluster.
	AskRemove Verb = "remove"
)

// Request is the content of a request: what a person asks the machine of the leader for. Requests are numbered from 1
// without a gap, since machines may not list what is in the store; whoever creates one takes the first free number.
type Request struct {
	At   time.Time `json:"at"`
	Verb Verb      `json:"verb"`
	// Epoch is the epoch that it is meant for: in another one it is refused.
	Epoch int `json:"epoch"`
	// Member, ID and Place are of AskRemove: the member's name, its ID, and where its data are (see RemovedObject).
	Member string `json:"member,omitempty"`
	ID     ID     `json:"id,omitzero"`
	Place  string `json:"place,omitempty"`
}

// Answer is what became of a request, created once by the machine that carried it out.
type Answer struct {
	At time.Time `json:"at"`
	// Instance and Member are who carried it out.
	Instance string `json:"instance"`
	Member   string `json:"member"`
	// Done are the steps that were taken, for people. Error is why it was refused or given up, empty if it was not; Next is
	// what to do about that.
	Done  []string `json:"done,omitempty"`
	Error string   `json:"error,omitempty"`
	Next  string   `json:"next,omitempty"`
}

// Removed is the record that a member was removed by a person's request: what is at that place joins no more.
type Removed struct {
	Member string `json:"member"`
	Epoch  int    `json:"epoch"`
	// Request is the number of the request.
	Request int `json:"request"`
}

// Work is what a leader's machine is doing for the whole cluster.
type Work struct {
	// Request is the number of the request, 0 for what the machine does by itself.
	Request int  `json:"request,omitempty"`
	Verb    Verb `json:"verb"`
	// Doing is the step that was begun last, Done are those before it, for people.
	Doing string   `json:"doing"`
	Done  []string `json:"done,omitempty"`
}

// RequestObject is the request of a number, from 1.
func RequestObject(n int) string { return requestDir(n) + "ask" }

// AnswerObject is its answer.
func AnswerObject(n int) string { return requestDir(n) + "answer" }

func requestDir(n int) string { return Records + "requests/" + strconv.Itoa(n) + "/" }

// RemovedObject is the record that the data at a place are of a member that was removed: a volume, or for data on a machine's
// own disk the instance. A member that comes back has another place.
func RemovedObject(place string) string { return Records + "volumes/" + place + "/removed" }
