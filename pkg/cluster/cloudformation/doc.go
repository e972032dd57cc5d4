// Package cloudformation creates, updates and deletes CloudFormation stacks.
//
// Its rule: nothing is changed that was not shown first. A change set is made, described and checked, and then executed
// or deleted, even if the caller is interrupted. Progress is reported event by event. A failure names the resource that
// failed first and the next step. An unchanged stack is a success without an operation.
package cloudformation
