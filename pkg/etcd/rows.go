package etcd

import "fmt"

// Row is a row of the table of decisions. Its text is the short name: "V1".
type Row uint8

// The rows, in the order in which they are looked at.
const (
	V0Silent Row = iota
	V1None
	V2Many
	V3Free
	V4Held
	V5Device
	E1Store
	F0Unread
	F1Blank
	F2Half
	F3Lost
	F4Ours
	F5Foreign
	E3Older
	E2Begin
	E5Unmarked
	E4Epoch
	N6Next
	E6Other
	D3Removed
	D4Broken
	D1Formed
	D2Forming
	J1Empty
	N0Stranger
	N0Address
	R1Fetch
	N1Claim
	N1Start
	N2Abandon
	S1Seal
	S2Gone
	N4Wait
	N3Form
	N5Open
	S3Address
	S4Broken
	J2Learner
	SRuns
)

type rowInfo struct {
	name   string
	when   string
	do     Do
	reason string
	next   string
	// clients and start are for actions that write the environment.
	clients Clients
	start   Start
}

const (
	byVolume     = "volume"
	byMembership = "membership"
	byStore      = "store"
)

const (
	replace = "hardtack etcd replace MEMBER makes a new volume, if the old one is lost for good"
	status  = "hardtack etcd status shows every member, its volume and who holds it"
	restore = "hardtack etcd restore begins a new epoch from a backup"
)

// rows is the table. What each step does is said at Do.
var rows = [...]rowInfo{
	V0Silent:   {name: "V0", when: "the cloud does not say which volumes there are, and none is mounted", do: Wait, reason: byVolume, next: "the instance's role needs ec2:DescribeVolumes; hardtack stack render prints the policy"},
	V1None:     {name: "V1", when: "no volume in this zone has the tags of the cluster and the member", do: Wait, reason: byVolume, next: "hardtack stack apply makes it; " + replace},
	V2Many:     {name: "V2", when: "more than one volume has the tags", do: Stop, reason: byVolume, next: "take the tags off all but the member's own volume; " + status},
	V3Free:     {name: "V3", when: "the volume is free", do: Attach, reason: byVolume},
	V4Held:     {name: "V4", when: "the volume is held by another machine, or not to be had yet", do: Wait, reason: byVolume, next: "it becomes free when its holder is terminated; it is never detached by force"},
	V5Device:   {name: "V5", when: "no device has its serial number yet", do: Wait, reason: byVolume, next: "lsblk -o NAME,SERIAL shows the devices; " + status},
	E1Store:    {name: "E1", when: "the store does not answer", do: Wait, reason: byStore},
	F0Unread:   {name: "F0", when: "the device cannot be read", do: Wait, reason: byVolume, next: "dmesg shows the errors; " + replace},
	F1Blank:    {name: "F1", when: "the device is blank, and no file system was ever made on it", do: Make, reason: byVolume},
	F2Half:     {name: "F2", when: "nothing is recognized on the device; its file system is this member's to make, and it never had data", do: Format, reason: byVolume},
	F3Lost:     {name: "F3", when: "it had this member's data and has lost its file system", do: Stop, reason: byVolume, next: replace},
	F4Ours:     {name: "F4", when: "it has the file system that this member made", do: Mount, reason: byVolume},
	F5Foreign:  {name: "F5", when: "what is on it is not this member's", do: Stop, reason: byVolume, next: "put the member's own volume back, or: " + replace},
	E3Older:    {name: "E3", when: "the data are of a later epoch than the store's", do: Stop, reason: byMembership, next: "the store is older than the data, or another one: put the cluster's records back"},
	E2Begin:    {name: "E2", when: "the store has no epoch", do: Wait, reason: byMembership, next: "hardtack pki create makes the first epoch of a new cluster; for one that had data, put its records back"},
	E5Unmarked: {name: "E5", when: "there are data without a marker that says whose", do: Stop, reason: byMembership, next: "move the data away, if they are not needed; " + replace},
	E4Epoch:    {name: "E4", when: "the data are of an earlier epoch", do: Discard},
	N6Next:     {name: "N6", when: "the first start of the epoch was abandoned, and the next has not begun", do: NextEpoch},
	E6Other:    {name: "E6", when: "the data are of another cluster than the one that was formed", do: Stop, reason: byMembership, next: status},
	D3Removed:  {name: "D3", when: "the cluster's list does not have the member whose data these are", do: Discard},
	D4Broken:   {name: "D4", when: "etcd panics on them, and the cluster's list still has their member as a learner: they have no vote, and nothing that others lack", do: Discard},
	D1Formed:   {name: "D1", when: "there are data of this epoch, which is formed", do: Run, clients: Open},
	D2Forming:  {name: "D2", when: "there are data of this epoch, which has no outcome", do: Run},
	J1Empty:    {name: "J1", when: "there are no data, and the epoch is formed", do: Join, reason: byMembership},
	N0Stranger: {name: "N0", when: "the member is not one of the epoch's first start, which has no outcome", do: Wait, reason: byMembership, next: "it joins when the others have formed the cluster; " + status},
	N0Address:  {name: "N0", when: "the member offers another address than the epoch's first start expects", do: Stop, reason: byMembership, next: "the document's names of etcd's members are not those of hardtack pki create"},
	R1Fetch:    {name: "R1", when: "the epoch starts from a backup, which is not here yet", do: Fetch, reason: byMembership, next: "hardtack etcd backup list shows the backups that can be read"},
	N1Claim:    {name: "N1", when: "there are no data, the epoch has no outcome, and this member has never started in it", do: Claim},
	N1Start:    {name: "N1", when: "as before, and this very process has created the record that it starts", do: First, start: New},
	N2Abandon:  {name: "N2", when: "there are no data, the epoch has no outcome, and this member has started in it before", do: Abandon},
	S1Seal:     {name: "S1", when: "etcd runs and has a log, and its environment still lets it begin without one", do: Rewrite},
	S2Gone:     {name: "S2", when: "etcd ended by itself, and its file system, its marker or its log is gone", do: Halt},
	N4Wait:     {name: "N4", when: "etcd runs; the epoch has no outcome, and too few members have started", do: Wait, reason: byMembership, next: "journalctl -u etcd on each member; " + status},
	N3Form:     {name: "N3", when: fmt.Sprintf("etcd runs and reads; all members have started, or a quorum and %s have passed; and a quorum has left the epoch before", FormAfter), do: Form},
	N5Open:     {name: "N5", when: "etcd runs for this machine alone, and the epoch is formed", do: Reopen, clients: Open},
	S3Address:  {name: "S3", when: "etcd runs, is the cluster's only member, and the cluster has it at another address than its machine offers", do: Advertise, clients: Open},
	S4Broken:   {name: "S4", when: fmt.Sprintf("etcd has ended with a panic %d times in a row and never answered, and the cluster's list has it as a learner", PanicsBefore), do: Halt},
	J2Learner:  {name: "J2", when: "etcd runs as a learner", do: Join, reason: byMembership, clients: Open},
	SRuns:      {name: "S", when: "etcd runs", do: Report},
}

func (r Row) String() string { return rows[r].name }

// When says in which case a row is the one, for people.
func (r Row) When() string { return rows[r].when }

// MarshalText formats it as String does.
func (r Row) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText parses the text of String. Of two rows with one name it is the first.
func (r *Row) UnmarshalText(text []byte) error {
	for i := range rows {
		if rows[i].name == string(text) {
			*r = Row(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a row of the table of decisions", text)
}

func (r Row) action() Action {
	i := &rows[r]
	return Action{Row: r, Do: i.do, Clients: i.clients, Start: i.start}
}
