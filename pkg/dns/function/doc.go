// Package function is the DNS function: AWS Lambda invokes it with messages of an SQS queue, to which EventBridge sends
// events. The lab invokes it in the same way.
//
// Its rule: an event's content is not trusted. It only selects the clusters to reconcile, each once for all messages of a
// batch. An unreadable event selects every cluster of the allow-list, and an event about anything else selects none.
package function
