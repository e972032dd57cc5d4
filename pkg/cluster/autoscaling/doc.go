// Package autoscaling reads a cluster's AutoScaling groups for a rollout, and executes the rollout's steps.
//
// Its rule: it decides nothing. The version of a machine is that of the launch template which its group reports for it.
// The wanted version is the latest of the template, which is the stack's, unless the caller selects another.
package autoscaling
