// Package rollout replaces a cluster's machines with machines of another version, with another image or configuration.
//
// Its rule: a pure function of one reading of the cluster (Next) decides which machine is replaced next. It replaces at
// most one machine of the control plane at a time, and only while all others of it serve and are listed in DNS. A machine
// that must not be replaced at all is refused before anything is done (Refuse). A run stores no state: the machines
// themselves show the progress, so that an interrupted run is simply started again.
//
// The order is etcd, masters, then everything else: a control plane may be newer than its clients. Machines of the
// control plane are ended one by one here. The others are replaced by AutoScaling's instance refresh, which has
// checkpoints and a rollback, and which continues without supervision.
package rollout
