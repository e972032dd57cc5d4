// Package reason names why a machine is not what it should be, for programs as well as for people.
//
// Its rule: one failure is one line of JSON on the console and in the journal, and its reason is one word
// of the table here: who reads consoles (the lab, an operator's alarm) needs no other.
package reason

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Reason is one word for what is wrong. The zero value is Unknown's.
type Reason string

// The reasons, in the order in which a boot can meet them: what stands earlier can be the cause of what
// stands later.
const (
	UserData      Reason = "userdata"       // no user data, or user data that cannot be used
	Disk          Reason = "disk"           // a file system cannot be written, or is full
	Config        Reason = "config"         // the machine file is missing or wrong
	Metadata      Reason = "metadata"       // the instance metadata service does not answer
	Network       Reason = "network"        // no address, no route
	Clock         Reason = "clock"          // the machine's clock is wrong for its certificates
	Store         Reason = "store"          // the cluster's store does not answer, or has not what is needed
	Permission    Reason = "permission"     // the instance's role may not do what it must
	Certificates  Reason = "certificates"   // certificates are not there yet, or cannot be made
	Token         Reason = "token"          // there is no bootstrap token
	DNS           Reason = "dns"            // a name has no address
	Unreachable   Reason = "unreachable"    // nothing answers at any address of a name
	Untrusted     Reason = "untrusted"      // what answers shows a certificate of another CA, or for another name
	NotReady      Reason = "not-ready"      // a server answers that it is not ready
	File          Reason = "file"           // a file that another unit makes is not there yet
	Etcd          Reason = "etcd"           // the etcd member does not work
	API           Reason = "api"            // the API server of this machine does not work
	Addons        Reason = "addons"         // what every cluster needs has not been applied
	Kubelet       Reason = "kubelet"        // the kubelet does not run, or does not answer
	NotRegistered Reason = "not-registered" // the API has no Node of this machine
	NodeNotReady  Reason = "node-not-ready" // the Node is there and not Ready
	Unit          Reason = "unit"           // a unit does not run, and says no more
	Hook          Reason = "hook"           // the group's lifecycle action could not be completed
	Internal      Reason = "internal"       // everything else: a fault of the agent's
)

// next says what to do about a reason. Where only the failure itself can say, it is empty.
var next = map[Reason]string{
	UserData:      "give the machine user data as hardtack userdata writes it",
	Disk:          "findmnt / and systemctl status systemd-remount-fs systemd-fsck-root say whether it is mounted for writing, df / whether it is full; then start the machine again",
	Config:        "write the user data again with hardtack userdata",
	Metadata:      "look whether the instance's metadata service is switched on, and at its hop limit",
	Network:       "networkctl status shows what the interface has got; is there DHCP?",
	Clock:         "timedatectl timesync-status shows the time server; the machine goes on by itself when its clock is right",
	Store:         "hardtack pki create makes the store's contents; look at the endpoint that the cause names",
	Permission:    "give the group's instance role the policy of its roles",
	Certificates:  "journalctl -u hardtack-certs-masters -u hardtack-certs-etcd says what they wait for",
	Token:         "a master writes the token when its API server works: look at the masters' consoles",
	DNS:           "hardtack dns doctor looks at the zone; the record is there when a machine of the group is",
	Unreachable:   "look whether the servers at these addresses run, and at the security groups between",
	Untrusted:     "the machine's user data holds another cluster's CA, or something stands between: compare /etc/hardtack/ca.crt with the store's public/kubernetes-ca.crt",
	NotReady:      "the server's own journal says which of its parts is not ready",
	File:          "look at the unit that makes the file",
	Etcd:          "journalctl -u etcd",
	API:           "journalctl -u kube-apiserver",
	Addons:        "journalctl -u hardtack-addons",
	Kubelet:       "journalctl -u kubelet",
	NotRegistered: "journalctl -u kubelet; is its certificate request approved? (kubectl get csr)",
	NodeNotReady:  "the Node's condition Ready says why: kubectl describe node",
	Unit:          "journalctl -u with the unit's name",
	Hook:          "give the group's instance role autoscaling:CompleteLifecycleAction, or complete the action by hand",
	Internal:      "journalctl -u with the unit's name; report it with that",
}

// All lists every reason in the order of the table.
func All() []Reason {
	return []Reason{UserData, Disk, Config, Metadata, Network, Clock, Store, Permission, Certificates, Token, DNS, Unreachable, Untrusted,
		NotReady, File, Etcd, API, Addons, Kubelet, NotRegistered, NodeNotReady, Unit, Hook, Internal}
}

// Next is what to do about the reason.
func (r Reason) Next() string { return next[r] }

// Error is an error that has a reason. Its text is that of Err.
type Error struct {
	Reason Reason
	// Next, when not empty, replaces the reason's own advice.
	Next string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an error with a reason.
func Errorf(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}

// With gives err a reason, unless it has one already or is nil.
func With(r Reason, err error) error {
	var has *Error
	if err == nil || errors.As(err, &has) {
		return err
	}
	return &Error{Reason: r, Err: err}
}

// Of returns the reason of an error, and Internal for one that has none.
func Of(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return Internal
}

// Failure is what the line says. The fields' order is the line's.
type Failure struct {
	// Unit is the systemd unit that cannot go on.
	Unit   string `json:"unit"`
	Reason Reason `json:"reason"`
	// Cause is what happened, in one line.
	Cause string `json:"cause"`
	Next  string `json:"next"`
}

// Explain makes the failure of a unit from an error.
func Explain(unit string, err error) Failure {
	f := Failure{Unit: unit, Reason: Of(err), Cause: oneLine(err.Error())}
	var e *Error
	if errors.As(err, &e) {
		f.Next = e.Next
	}
	if f.Next == "" {
		f.Next = f.Reason.Next()
	}
	return f
}

// maxCause bounds a cause, in bytes, so that the line fits what a console's reader takes at once.
const maxCause = 700

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	return text
}

// mark is what every line of ours begins with, so that a reader of a console finds it among others.
const mark = `{"hardtack":"failed",`

// Line is the failure as it stands on the console, without the newline.
func (f Failure) Line() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings always marshal
	}
	return mark + string(text[1:])
}

// Write writes the line.
func (f Failure) Write(w io.Writer) error {
	_, err := io.WriteString(w, f.Line()+"\n")
	return err
}

// Parse finds the failure in a line of a console, which may have the kernel's or the journal's words
// before it and a carriage return after it.
func Parse(line string) (Failure, bool) {
	i := strings.Index(line, mark)
	if i < 0 {
		return Failure{}, false
	}
	var f Failure
	if err := json.NewDecoder(strings.NewReader(line[i:])).Decode(&f); err != nil || !slices.Contains(All(), f.Reason) {
		return Failure{}, false
	}
	return f, true
}

// Status is the text of a unit's STATUS= while it waits: "[reason] cause", which Status's reader takes
// apart again.
func Status(err error) string { return fmt.Sprintf("[%s] %s", Of(err), oneLine(err.Error())) }

// OfStatus reads what Status writes; ok is false for any other text.
func OfStatus(text string) (r Reason, cause string, ok bool) {
	word, cause, found := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	if !strings.HasPrefix(text, "[") || !found || !slices.Contains(All(), Reason(word)) {
		return "", text, false
	}
	return Reason(word), cause, true
}
