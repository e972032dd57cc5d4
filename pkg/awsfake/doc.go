// Package awsfake is a very small AWS account: strict stand-ins for the few APIs that Hardtack calls,
// over the real wire protocols, with state, limits, a clock of its own and faults on demand.
//
// Its rule: refuse what AWS documents that it refuses. Where the documentation leaves room, the fake
// takes the reading that is hardest on the caller; what it does not model it answers with an error,
// never with an invention.
//
// An [Account] holds everything; [Account.Handler] is one HTTP handler for every API, meant for
// AWS_ENDPOINT_URL, and the same calls exist as Go methods for simulators that make millions of them.
// Both pass the same gate: the call is counted, delayed, throttled, denied, carried out and answered
// in that order, and calls are carried out one after another.
//
// Who calls is nobody's business until the account has roles or users ([Account.AddRole], [Account.AddUser]): from
// then on signatures are checked, sessions end, and IAM policies ([ParsePolicy]) are evaluated for each action,
// resource and condition, with the refusals of each service.
//
// Stacks ([Account.CloudFormation]) make their resources in the account itself: what a role of theirs may do, what a
// group of theirs launches from and which records their zone has is held to the same rules as all the rest.
//
// An account is also a very small region whose groups keep their size: a program is the hypervisor of its
// machines by [Hypervisor] and [Account.Run], and hears of events by [Events.Subscribe] or a queue. What each API holds, from which source,
// and what it leaves out is said beside it: route53_doc.go for Route 53, directAPI for snapshots, Images for images.
//
// Options.Regions gives the account other regions, each with images, snapshots and parameters of its own; machines,
// groups, queues and stacks are in the home region. What a published snapshot holds is read back by the API that
// wrote it, or as the disk that it is by [Images.WriteRaw], or by [Images.WriteImage] from the image's identifier.
package awsfake
