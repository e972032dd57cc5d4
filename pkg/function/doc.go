// Package function is the DNS function: what AWS Lambda invokes with the messages of an SQS queue that
// EventBridge fills, and what the lab invokes with the same.
//
// Its rule: an event is a poke. What it says only chooses the clusters to look at, each once for all
// messages of a batch; one that cannot be read is a poke for every cluster of the allow-list, and one
// for anything else is a poke for none.
package function
