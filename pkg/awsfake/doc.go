// Package awsfake is a small AWS account for tests and the lab: strict stand-ins for the few APIs that Hardtack calls,
// over the real wire protocols, with state, limits, a virtual clock and faults on demand.
//
// Its rule: refuse everything that AWS documents as refused. Where the documentation leaves room, awsfake takes the
// reading that is hardest on the caller. It answers anything that it does not model with an error.
//
// An [Account] holds everything. [Account.Handler] is one HTTP handler for every API, meant for AWS_ENDPOINT_URL; the
// same calls exist as Go methods for simulators that make millions of them. Both pass the same gate: the call is
// counted, delayed, throttled, denied, carried out and answered in that order, and calls are carried out one after
// another.
//
// Callers are not authenticated until the account has roles or users ([Account.AddRole], [Account.AddUser]), unless it
// is closed from the start (Options.Closed). From then on signatures are checked, sessions end, and IAM policies ([ParsePolicy]) are evaluated for each action, resource and
// condition, with the refusals of each service.
//
// A role can also be taken with a token of an identity provider ([Account.AddOIDCProvider], [Account.SetTrust]): the call is not
// signed, and the token is verified with the keys that its issuer publishes, in a bucket of the account or elsewhere (Options.Web).
//
// Stacks ([Account.CloudFormation]) make their resources in the account itself. Their roles, launch templates and
// records follow the same rules as those that are made by API calls.
//
// An account is also a very small region whose groups keep their size: a program can be the hypervisor of its machines
// ([Hypervisor], [Account.Run]) and receives events from a queue. Each API's scope and sources are documented beside
// it: route53_doc.go for Route 53, directAPI for snapshots, Images for images.
//
// Options.Regions gives the account other regions, each with separate images, snapshots and parameters; machines,
// groups, queues and stacks are in the home region. A published snapshot can be read by the API that wrote it, or as a
// raw disk by [Images.WriteRaw].
//
// The package models the actions that production code, the lab and their tests call, and no others. The texts of
// refusals and similar depth are left to moto (pkg/awsfake/moto), which judges it and does not replace it: moto runs no lifecycle hook, and
// launches no machine that somebody could boot. LocalStack has AutoScaling in its paid image alone, without CompleteLifecycleAction and
// CancelInstanceRefresh (its page "Coverage: Auto Scaling"). It is one package because the services call each
// other under the account's one lock and one agenda: stacks make groups, groups launch machines from templates, images
// and parameters. A package for each service would need interfaces that repeat these methods.
//
// # Where two documents of AWS differ, or leave room
//
// The harder reading is taken. disagreements.txt lists every such place with both sources and the test that holds it.
//
// # Condition keys
//
// authorization.txt has the condition keys that AWS hands its policies for every action that is modelled. No others are handed here; of
// those that awsfake has no value for, a statement that asks for one allows nothing.
package awsfake
