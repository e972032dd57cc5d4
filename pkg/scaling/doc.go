// Package scaling reads a cluster's AutoScaling groups as a rollout sees them, and carries its steps out.
//
// Its rule: it decides nothing. What a machine was made from is read from the version of the launch template that its
// group says it was launched from, and what it should be from is the template's latest version, which is the stack's,
// unless the caller names another.
package scaling
