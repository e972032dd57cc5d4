// Package etcd decides what the machine of an etcd member does next: from what it sees, to one step.
//
// Its rule: it is pure. It reads no file, no clock and no network, and draws no random number but for a token; a member's
// loop gathers [Facts], calls [Decide], does the one step of the [Action], and looks again. Every step can be repeated, and
// a machine can end between any two.
//
// # What it keeps true
//
//   - A member is its data: the volume, not the machine. No member ID ever runs with less than it has acknowledged.
//   - An empty directory is started in two cases only: as part of a first start, directly after this process itself
//     created the record "started" of its member and epoch ([N1Start]), or under a member ID that was added for it in
//     this very run ([JoinStart]).
//   - Clients other than the agent reach a member only once the outcome of its epoch is "formed".
//   - What is dangerous is never allowed by reading a record, only by creating one: the store refuses a second creation,
//     while a read may be old.
//
// # Records
//
// Records are objects of the cluster's store below [Records]. Each is created once and never changed; [Status] alone is
// overwritten. An epoch is one life of the cluster: one token, so one cluster ID. Epoch n+1 begins only once epoch n has
// an outcome: after "abandoned" by any member, after "formed" by a restore alone. The operator's command that restores
// creates "abandoned" first where there is no outcome.
//
// # What etcd does, where it matters
//
// Read in etcd's source (server/etcdserver/bootstrap.go, api/membership) and compared with real members in the tests:
//
//   - A member ID is SHA-1 over its peer URLs and the token, a cluster ID is SHA-1 over the member IDs. [Begin] therefore
//     records the peer URLs: a later change of the document cannot change what an epoch's members start with.
//   - The members of a first start have their names from the flags, before any of them ran: a name in the list says
//     nothing. What a member publishes itself, through the log, is its client URLs: [Member.Started] is those.
//   - With a write-ahead log every flag of the first start is ignored. Without one, "existing" takes the ID of whoever has
//     the same peer URL, with an empty log: acknowledged writes get lost. So a start that expects a log is sealed
//     ([Sealed]): "existing" with this member as the only one. Without a log etcd then finds no peer to ask, and ends.
//   - "etcdutl snapshot restore" is not atomic. It writes beside the data; the directory is moved in place only after the
//     marker is written, so that a log without a marker is never ours.
//   - A member that is closed to clients listens on [ClosedAddress], not on 127.0.0.1: the API server beside it uses that.
package etcd
