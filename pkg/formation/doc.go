// Package formation brings CloudFormation stacks to what a template says, and away again.
//
// Its rule: nothing is changed that was not shown first. A change set is made, described and gated, and then executed or
// deleted, also where the caller is interrupted; what is under way is told event by event, and what has failed is told
// by the resource that failed first, with what to do next. What it finds unchanged is success without an operation.
package formation
