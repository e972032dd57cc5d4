// Package cluster operates a cluster on AWS: it applies the cluster's stack, refreshes and rolls back its machines, and
// deletes all of it, from the same document that the machines are made from.
//
// Its rule: nothing is ended that was not shown first. Each operation first reads everything that it depends on. It
// refuses, with a typed error, a change that would fail half way or lose data without permission; with DryRun it stops
// there. An interrupted operation continues when it is called again. Errors name no commands: the command line adds the
// next command to type.
package cluster
