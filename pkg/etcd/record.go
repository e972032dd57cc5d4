package etcd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Records is the directory of the records, as a path below the root of the cluster's store: a machine may create what is
// below it and never overwrite. StatusDir has the status of each member, which that member overwrites.
const (
	Records   = role.EtcdRecords
	StatusDir = role.EtcdStatus
)

// BeginObject is the record that epoch n exists (from 1). An epoch is the current one while the next has none.
func BeginObject(epoch int) string { return epochDir(epoch) + "begin" }

// StartedObject is the record that a member may start for the first time, once in the epoch.
func StartedObject(epoch int, member string) string { return epochDir(epoch) + "started-" + member }

// OutcomeObject is the record whether the epoch's first start succeeded: whoever creates it first decides.
func OutcomeObject(epoch int) string { return epochDir(epoch) + "outcome" }

func epochDir(epoch int) string { return Records + "epochs/" + strconv.Itoa(epoch) + "/" }

// MadeObject is the record of a volume's file system, created before it is made.
func MadeObject(volume string) string { return Records + "volumes/" + volume + "/made" }

// UsedObject is the record that a volume has or had data, created before etcd first starts on it.
func UsedObject(volume string) string { return Records + "volumes/" + volume + "/used" }

// StatusObject is what a member's machine reports about it, overwritten every minute.
func StatusObject(member string) string { return StatusDir + member }

// form is a regular expression that is compiled when it is first needed: the agent's other commands start without.
func form(text string) func(string) bool {
	compiled := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
	return func(value string) bool { return compiled().MatchString(value) }
}

// Peer is a member by its name and the URL at which the other members reach it.
type Peer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Begin is the content of an epoch's begin. `hardtack pki create` makes that of epoch 1; those of later epochs are made by
// the operator's restore, or by a member after an abandoned first start.
type Begin struct {
	// Token tells the clusters of two epochs apart: members with different ones refuse each other.
	Token string `json:"token"`
	// Members are those that start first; others join once the epoch is formed.
	Members []Peer `json:"members"`
	// Restore, if not nil, is the backup that the epoch starts from; otherwise it starts empty.
	Restore *Restore `json:"restore,omitempty"`
	// Previous are the names of the voters of the last formed epoch; empty for a cluster's first. The epoch is formed only
	// when a quorum of them has left the old one: moved its data away and started in this one. Who is not among Members
	// cannot start in it, and counts only if it is Off.
	Previous []string `json:"previous,omitempty"`
	// Off are those of Previous that the operator has declared switched off: they count as having left.
	Off []string `json:"off,omitempty"`
}

// Restore is a backup by its object's name, which is the same for every member, its content and its revision.
type Restore struct {
	Object   string `json:"object"`
	SHA256   string `json:"sha256"`
	Revision int64  `json:"revision"`
}

// Started is the content of a member's started.
type Started struct {
	// Volume is empty for storage machine.
	Volume   string `json:"volume,omitempty"`
	UUID     string `json:"uuid,omitempty"`
	Instance string `json:"instance"`
	// Attempt is the random word of the process that created it: only that process may start on it.
	Attempt string `json:"attempt"`
}

// Outcome is the content of an epoch's outcome: exactly one of its fields is set.
type Outcome struct {
	Formed    *Formed `json:"formed,omitempty"`
	Abandoned string  `json:"abandoned,omitempty"`
}

// Formed is the cluster that a first start made: its ID and the members' IDs by name.
type Formed struct {
	ClusterID ID            `json:"cluster_id"`
	Members   map[string]ID `json:"members,omitempty"`
}

// Made is the content of a volume's made: whose it is, and the only UUID that its file system may have.
type Made struct {
	Member string `json:"member"`
	UUID   string `json:"uuid"`
}

// How a volume came to its first data.
type How string

// The ways.
const (
	ByStart   How = "started"
	ByJoin    How = "joined"
	ByRestore How = "restored"
)

// Used is the content of a volume's used.
type Used struct {
	Epoch int `json:"epoch"`
	How   How `json:"how"`
}

// Status is what a member's machine reports about it. It is a report: nothing dangerous is decided by it.
type Status struct {
	At        time.Time `json:"at"`
	Instance  string    `json:"instance"`
	Volume    string    `json:"volume,omitempty"`
	Epoch     int       `json:"epoch"`
	MemberID  ID        `json:"member_id"`
	ClusterID ID        `json:"cluster_id"`
	// Row is the row of the last decision: "S" for a member that runs. Why and Next say what the machine waits for and what to
	// do about it; they are empty for one that waits for nothing. What is below Row is zero for a member that does not run.
	Row     Row     `json:"row"`
	Why     string  `json:"why,omitempty"`
	Next    string  `json:"next,omitempty"`
	Learner bool    `json:"learner,omitempty"`
	Leader  ID      `json:"leader"`
	Store   Content `json:"content"`
	// Backup is the newest backup of the epoch that this member knows, verified when it was taken; nil if there is none.
	Backup *Backup `json:"backup,omitempty"`
	// BackupFailed is why the last attempt to take a backup, or to look for one, failed; nil if it did not.
	BackupFailed *BackupFailure `json:"backup_failed,omitempty"`
	// Verified is the backup of the epoch that a leader's machine last took back from its place and restored for a trial; nil
	// if this machine knows of none. Its At is when the backup was taken, its Verified when it was taken back.
	Verified *Backup `json:"verified,omitempty"`
	// DrillFailed is why a backup could not be taken back or restored; nil if none has failed since, and a day has passed since
	// a damaged one was found.
	DrillFailed *BackupFailure `json:"drill_failed,omitempty"`
	// Work is what this machine does for the whole cluster; nil if nothing.
	Work *Work `json:"work,omitempty"`
}

// Content is how much a member has, and whether something is wrong with it.
type Content struct {
	Version string `json:"version"`
	// RaftIndex is the last entry of the log that the member has applied.
	RaftIndex uint64 `json:"raft_index"`
	Revision  int64  `json:"revision"`
	// Size is the size of the database's file in bytes, InUse what of it is not free.
	Size  int64 `json:"size"`
	InUse int64 `json:"in_use"`
	// Quota is the size of the database in bytes at which etcd takes no more writes; 0 if etcd does not say it.
	Quota int64 `json:"quota,omitempty"`
	// Alarms are etcd's names: NOSPACE, CORRUPT.
	Alarms []string `json:"alarms,omitempty"`
}

// Backup is a backup and when it was taken, and when it was last restored for a trial (zero if never).
type Backup struct {
	Restore
	At       time.Time `json:"at"`
	Verified time.Time `json:"verified,omitzero"`
}

// BackupFailure is when and why there is no newer backup, or none that was restored.
type BackupFailure struct {
	At  time.Time `json:"at"`
	Why string    `json:"why"`
	// Damaged: the place answered, and what it has is not what was stored.
	Damaged bool `json:"damaged,omitempty"`
}

// Marker is the file on the volume that says whose data are beside it, and of which epoch. It is written, with its
// directory, before there are data.
type Marker struct {
	Cluster string `json:"cluster"`
	Member  string `json:"member"`
	Epoch   int    `json:"epoch"`
	// Volume is empty for storage machine.
	Volume    string `json:"volume,omitempty"`
	MemberID  ID     `json:"member_id"`
	ClusterID ID     `json:"cluster_id"`
}

// The files of a member, below the directory Dir, which is where its volume is mounted.
const (
	Dir = "/var/lib/etcd"
	// MarkerFile has the Marker.
	MarkerFile = "hardtack.json"
	// DataDir is etcd's data directory: it has a log when member/wal below it is not empty.
	DataDir = "data"
	// TrashDir keeps the data of the last two epochs that were left.
	TrashDir = "trash"
	// RestoreDir is where a backup is restored before it is moved to DataDir.
	RestoreDir = "restore"
	// BackupDir has snapshots on their way to the place of backups, or from it.
	BackupDir = "backup"
)

// format is the version of all records' format. A newer one is an error: what it means is not known here.
const format = 1

// ErrNewer is an error of Parse: a newer Hardtack wrote the record.
var ErrNewer = errors.New("a newer version of Hardtack wrote it: use that version here too")

// Record is what Encode and Parse take.
type Record interface {
	Begin | Started | Outcome | Made | Used | Status | Marker | Order | Answer | Removed
}

// Encode returns the JSON of a record, a status or a marker.
func Encode[T Record](record T) []byte {
	text, err := json.Marshal(record)
	if err != nil {
		panic(err) // strings, numbers and times of this century always marshal
	}
	return append([]byte(fmt.Sprintf(`{"format":%d,`, format)), text[1:]...)
}

// Parse reads what Encode returned. Missing values and newer formats (ErrNewer) are errors, and unknown fields in what is acted on:
// who does not know a field may do what it forbids. A Status and an Answer are only looked at, also by a command that is older than
// the agents.
func Parse[T Record](data []byte) (T, error) {
	var record T
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return record, fmt.Errorf("parsing a record: %w", err)
	}
	var version int
	if err := json.Unmarshal(fields["format"], &version); err != nil || version < 1 {
		return record, fmt.Errorf("parsing a record: its format is %q, which is not a number from 1", fields["format"])
	}
	if version > format {
		return record, fmt.Errorf("parsing a record of format %d: %w", version, ErrNewer)
	}
	delete(fields, "format")
	rest, err := json.Marshal(fields)
	if err != nil {
		return record, fmt.Errorf("parsing a record: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(rest))
	switch any(record).(type) {
	case Status, Answer:
	default:
		decoder.DisallowUnknownFields()
	}
	if err := decoder.Decode(&record); err != nil && !errors.Is(err, io.EOF) {
		return record, fmt.Errorf("parsing a record: %w", err)
	}
	if err := check(record); err != nil {
		return record, fmt.Errorf("parsing a record: %w", err)
	}
	return record, nil
}

var (
	memberName = form(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	tokenForm  = form(`^[!-~]{1,64}$`)
	digest     = form(`^[0-9a-f]{64}$`)
)

// check reports what a record lacks.
func check(record any) error {
	switch r := record.(type) {
	case Begin:
		return r.check()
	case Started:
		return need(r.Attempt != "" && r.Instance != "", "attempt and instance")
	case Outcome:
		return need((r.Formed == nil) != (r.Abandoned == "") && (r.Formed == nil || r.Formed.ClusterID != 0), "either formed with a cluster ID, or abandoned")
	case Made:
		return need(memberName(r.Member) && r.UUID != "", "member and uuid")
	case Used:
		return need(r.Epoch > 0 && (r.How == ByStart || r.How == ByJoin || r.How == ByRestore), "epoch and how")
	case Status:
		return need(!r.At.IsZero() && r.Instance != "", "at and instance")
	case Order:
		return need(!r.At.IsZero() && r.Verb != "" && (r.Verb != AskRemove || memberName(r.Member) && r.ID != 0 && r.Place != ""), "at and verb, and for remove member, id and place")
	case Answer:
		return need(!r.At.IsZero() && r.Instance != "", "at and instance")
	case Removed:
		return need(memberName(r.Member) && r.Epoch > 0, "member and epoch")
	case Marker:
		return need(r.Cluster != "" && memberName(r.Member) && r.Epoch > 0, "cluster, member and epoch")
	}
	return nil
}

func need(ok bool, what string) error {
	if !ok {
		return errors.New("it needs " + what)
	}
	return nil
}

func (b Begin) check() error {
	if !tokenForm(b.Token) || len(b.Members) == 0 {
		return errors.New("it needs token and members")
	}
	names, urls := map[string]bool{}, map[string]bool{}
	for _, m := range b.Members {
		if !memberName(m.Name) || m.URL == "" || names[m.Name] || urls[m.URL] {
			return fmt.Errorf("member %q at %q: names and URLs are unique and not empty", m.Name, m.URL)
		}
		names[m.Name], urls[m.URL] = true, true
	}
	if r := b.Restore; r != nil {
		return need(r.Object != "" && digest(r.SHA256), "object and sha256 of what it restores")
	}
	return nil
}

// Next returns the begin of the epoch after an abandoned one: the same, with a token of its own.
func (b Begin) Next(token string) Begin {
	b.Token = token
	return b
}

// peer returns the member of that name; ok is false if it is not one of the first start.
func (b *Begin) peer(name string) (Peer, bool) {
	for _, m := range b.Members {
		if m.Name == name {
			return m, true
		}
	}
	return Peer{}, false
}
