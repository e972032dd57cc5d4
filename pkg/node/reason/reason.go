// Package reason lists the reasons why a machine fails to boot, each with its next step, for people and programs.
//
// Its rule: each failure is one line of JSON on the console and in the journal, and its reason is one word of the table
// here. Programs that read consoles (the lab, an operator's alarm) need nothing else.
package reason

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Reason is the reason of a failure, as one word. The zero value is not a reason, and has no next step.
type Reason string

// The reasons, in the order of a boot: an earlier one can be the cause of a later one.
const (
	UserData      Reason = "userdata"       // the user data is missing or invalid
	Disk          Reason = "disk"           // a file system is read-only or full
	Config        Reason = "config"         // the machine file is missing or invalid
	Drift         Reason = "drift"          // the machine's configuration differs from what its cluster agreed on
	Metadata      Reason = "metadata"       // the instance metadata service does not answer
	Network       Reason = "network"        // the machine has no address or no route
	Clock         Reason = "clock"          // the machine's clock is outside the validity of its certificates
	Store         Reason = "store"          // the cluster's store does not answer, or lacks an object
	Permission    Reason = "permission"     // the instance's IAM role lacks a permission
	Certificates  Reason = "certificates"   // certificates are not issued yet, or cannot be issued
	Token         Reason = "token"          // the store has no valid bootstrap token
	Identity      Reason = "identity"       // the masters have not approved the machine's request for a node's certificate
	DNS           Reason = "dns"            // a name does not resolve
	Unreachable   Reason = "unreachable"    // no address of a name answers
	Untrusted     Reason = "untrusted"      // a server's certificate is from another CA, or for another name
	NotReady      Reason = "not-ready"      // a server reports that it is not ready
	Volume        Reason = "volume"         // the etcd member's volume is not there, not free, or not the member's
	Membership    Reason = "membership"     // the machine may not start its etcd member as things are
	File          Reason = "file"           // a file that another unit creates does not exist yet
	Etcd          Reason = "etcd"           // the etcd member is not healthy
	Backup        Reason = "backup"         // a backup of etcd could not be taken or stored, or taken back and restored
	NoSpace       Reason = "no-space"       // etcd's database is at its quota, and takes no writes (alarm NOSPACE)
	Corrupt       Reason = "corrupt"        // the member's data differ from those of the others (alarm CORRUPT)
	API           Reason = "api"            // the API server of this machine is not healthy
	Addons        Reason = "addons"         // the cluster's basic objects have not been applied
	Kubelet       Reason = "kubelet"        // the kubelet is not running or not healthy
	NotRegistered Reason = "not-registered" // the machine has not registered as a Node
	NodeNotReady  Reason = "node-not-ready" // the Node exists but is not Ready, or takes no pods yet
	Unit          Reason = "unit"           // a unit is not running, and gives no other reason
	Hook          Reason = "hook"           // the group's lifecycle action could not be completed
	Internal      Reason = "internal"       // any other failure: a bug of the agent
)

// next is the next step for each reason: a command, with UNIT in place of the unit's name. An Error may have a more
// specific one.
var next = map[Reason]string{
	UserData:      "hardtack userdata -f CLUSTER.yaml --group GROUP prints the user data; start the machine again with it",
	Disk:          "findmnt / shows whether the root file system is read-only (journalctl -k -g EXT4 has the cause: with an error in it, replace the machine), df whether it is full",
	Config:        "hardtack-agent config shows the machine's configuration; compare it with the output of hardtack userdata -f CLUSTER.yaml --group GROUP",
	Drift:         "hardtack pki show prints what the cluster agreed on; compare it with the output of hardtack userdata -f CLUSTER.yaml --group GROUP",
	Metadata:      "aws ec2 modify-instance-metadata-options --instance-id ID --http-endpoint enabled, if the service is disabled; if it is not, networkctl status shows whether the machine has an address and a route",
	Network:       "networkctl status shows the interface's address and routes; if there are none, check the network's DHCP server",
	Clock:         "timedatectl timesync-status shows the time server; the machine continues as soon as its clock is right",
	Store:         "hardtack pki verify --cluster NAME lists missing objects, and hardtack pki create creates them; if the store does not answer, check the endpoint in the cause",
	Permission:    "hardtack pki policy --cluster NAME --role ROLES prints the policy; attach it to the group's instance role",
	Certificates:  "journalctl -u hardtack-certs-masters -u hardtack-certs-etcd shows what is missing",
	Token:         "journalctl -u kube-apiserver -u hardtack-controller on the masters: a master creates the token once its API server is ready",
	Identity:      "journalctl -u hardtack-controller on the masters says why; kubectl get csr lists the requests, and kubectl certificate approve NAME approves one by hand",
	DNS:           "hardtack dns doctor checks the zone; a record appears once a machine of its group is healthy",
	Unreachable:   "curl -kv https://ADDRESS/readyz from this machine; if it fails, check that the server runs and that the security groups allow the port",
	Untrusted:     "hardtack pki ca --cluster NAME prints the cluster's CA; the user data must have this CA or none. If it does, check for a proxy or another server at the address",
	NotReady:      "journalctl on the server, which reports the part that is not ready",
	Volume:        "journalctl -u UNIT names the volume and what is wrong with it",
	Membership:    "journalctl -u UNIT says what the cluster's records and members say, and what follows",
	File:          "journalctl -b -p warning shows why the unit that creates the file has not finished",
	Etcd:          "journalctl -u etcd; where that says that a version is not supported, go back to the newer image: an older minor version of etcd needs etcdctl downgrade enable first",
	Backup:        "hardtack etcd status shows how old the newest backup is; the machine tries again, and etcd serves meanwhile",
	NoSpace:       "delete what is not needed, then hardtack etcd defrag compacts, defragments and ends the alarm; hardtack etcd status shows it",
	Corrupt:       "hardtack etcd status names the member; end its machine, then hardtack etcd replace MEMBER",
	API:           "journalctl -u kube-apiserver",
	Addons:        "journalctl -u hardtack-addons",
	Kubelet:       "journalctl -u kubelet",
	NotRegistered: "journalctl -u kubelet, and kubectl get csr: the node's certificate request must be approved",
	NodeNotReady:  "kubectl describe node shows why, in the condition Ready",
	Unit:          "journalctl -u UNIT",
	Hook:          "hardtack stack render prints the policy that allows the instance role to complete the hook; to complete it by hand: aws autoscaling complete-lifecycle-action",
	Internal:      "journalctl -u UNIT, and report the bug with its output",
}

// All lists the reasons in the order of the table.
func All() []Reason {
	return []Reason{UserData, Disk, Config, Drift, Metadata, Network, Clock, Store, Permission, Certificates, Token, Identity, DNS, Unreachable, Untrusted,
		NotReady, Volume, Membership, File, Etcd, NoSpace, Corrupt, Backup, API, Addons, Kubelet, NotRegistered, NodeNotReady, Unit, Hook, Internal}
}

// Next returns the next step, which has UNIT in place of the unit's name.
func (r Reason) Next() string { return next[r] }

// Error is an error with a reason. Its text is that of Err.
type Error struct {
	Reason Reason
	// Next, if not empty, replaces the reason's next step.
	Next string
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error with a reason; it formats as fmt.Errorf does.
func Errorf(r Reason, format string, args ...any) error {
	return &Error{Reason: r, Err: fmt.Errorf(format, args...)}
}

// With adds a reason to err, unless err has one already or is nil.
func With(r Reason, err error) error {
	var has *Error
	if err == nil || errors.As(err, &has) {
		return err
	}
	return &Error{Reason: r, Err: err}
}

// Of returns the reason of an error; Internal if it has none.
func Of(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return Internal
}

// Failure is the content of the line. The order of the fields is that of the line.
type Failure struct {
	// Unit is the systemd unit that failed.
	Unit   string `json:"unit"`
	Reason Reason `json:"reason"`
	// Cause is the error's text in one line.
	Cause string `json:"cause"`
	Next  string `json:"next"`
}

// Explain returns the failure of a unit for an error, with UNIT replaced in the next step.
func Explain(unit string, err error) Failure {
	f := Failure{Unit: unit, Reason: Of(err), Cause: oneLine(err.Error())}
	var e *Error
	if errors.As(err, &e) {
		f.Next = e.Next
	}
	if f.Next == "" {
		f.Next = strings.ReplaceAll(f.Reason.Next(), "UNIT", unit)
	}
	return f
}

// maxCause bounds a cause, in bytes, so that readers of a console get the line whole.
const maxCause = 700

func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxCause {
		text = strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	return text
}

// mark begins each line, so that readers of a console can recognize it.
const mark = `{"hardtack":"failed",`

// Line returns the failure as JSON, without a newline.
func (f Failure) Line() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // strings always marshal
	}
	return mark + string(text[1:])
}

// Write writes the line with a newline.
func (f Failure) Write(w io.Writer) error {
	_, err := io.WriteString(w, f.Line()+"\n")
	return err
}

// Parse finds a failure in a line of a console. The kernel or the journal may have put text before it, and the line may
// end in a carriage return. ok is false if there is none.
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

// Status returns the STATUS= of a unit that waits: "[reason] cause". OfStatus parses it.
func Status(err error) string { return fmt.Sprintf("[%s] %s", Of(err), oneLine(err.Error())) }

// OfStatus parses the text of Status; ok is false for any other text, which is then the cause.
func OfStatus(text string) (r Reason, cause string, ok bool) {
	word, cause, found := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	if !strings.HasPrefix(text, "[") || !found || !slices.Contains(All(), Reason(word)) {
		return "", text, false
	}
	return Reason(word), cause, true
}
