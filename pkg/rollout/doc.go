// Package rollout replaces a cluster's machines by ones of another version: another image, another configuration.
//
// Its rule: who may be replaced next is a pure function of one reading of the cluster (Next), and the answer is at most
// one machine of the control plane at a time, only while every other seat of it is filled by a machine that serves and
// that DNS names. What may not be replaced at all is said before anything is done (Refuse). Nothing is remembered
// between two runs: what is done is what the machines are, so that a run that was cut off is simply begun again.
//
// The order is etcd, masters, then everything else: a control plane may be newer than what asks it. Machines of the
// control plane are ended one by one here; for the others AutoScaling has a refresh of its own, with checkpoints and
// a way back, which goes on without anybody watching.
package rollout
