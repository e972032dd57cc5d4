package etcd

import (
	"strconv"
	"time"
)

// Verb is what a person asks the machine of the leader for.
type Verb string

// The verbs. A machine answers one that it does not know with an error, and so an order that it cannot read.
const (
	// AskDefrag: give the free space of every member's database back; after the alarm NOSPACE, compact first and end it.
	AskDefrag Verb = "defrag"
	// AskBackup: take a backup.
	AskBackup Verb = "backup"
	// AskRemove: remove Order.Member from the cluster.
	AskRemove Verb = "remove"
)

// Order is the content of an order: what a person asks the machine of the leader for. The orders of an epoch are numbered
// from 1 without a gap, since machines may not list what is in the store; whoever creates one takes the first free number.
type Order struct {
	At   time.Time `json:"at"`
	Verb Verb      `json:"verb"`
	// Member, ID and Place are of AskRemove: the member's name, its ID, and where its data are (see RemovedObject).
	Member string `json:"member,omitempty"`
	ID     ID     `json:"id,omitzero"`
	Place  string `json:"place,omitempty"`
}

// Answer is what became of an order, created once by the machine that carried it out.
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

// Removed is the record that a member was removed by a person's order: what is at that place joins no more.
type Removed struct {
	Member string `json:"member"`
	Epoch  int    `json:"epoch"`
	// Order is the number of the order.
	Order int `json:"order"`
}

// Work is what a leader's machine is doing for the whole cluster.
type Work struct {
	// Order is the number of the order, 0 for what the machine does by itself.
	Order int  `json:"order,omitempty"`
	Verb  Verb `json:"verb"`
	// Doing is the step that was begun last, Done are those before it, for people.
	Doing string   `json:"doing"`
	Done  []string `json:"done,omitempty"`
}

// OrderObject is the order of a number, from 1, in an epoch.
func OrderObject(epoch, n int) string { return epochDir(epoch) + "order-" + strconv.Itoa(n) }

// AnswerObject is its answer.
func AnswerObject(epoch, n int) string { return epochDir(epoch) + "answer-" + strconv.Itoa(n) }

// RemovedObject is the record that the data at a place are of a member that was removed: a volume, or for data on a machine's
// own disk the instance. A member that comes back has another place.
func RemovedObject(place string) string { return Records + "volumes/" + place + "/removed" }
