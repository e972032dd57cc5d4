package lab

// DefaultCluster is the document of a lab that is given none: one control plane, which is an etcd member too, and two
// minions.
const DefaultCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
` + Patience

// Patience are the lines of a document that let a control plane live on a computer that is too busy for it: leader
// election ends a controller manager or a scheduler that could not renew its lease for 10 s, and an emulated API
// server is at times slower than that. A control plane of one machine has nobody who waits for the lease.
const Patience = `kubeControllerManager:
  flags: {leader-elect-lease-duration: 2m0s, leader-elect-renew-deadline: 1m30s, leader-elect-retry-period: 10s}
kubeScheduler:
  config: {leaderElection: {leaseDuration: 2m0s, renewDeadline: 1m30s, retryPeriod: 10s}}
`
