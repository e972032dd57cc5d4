// Package fleet reads the machines of a cluster: from AutoScaling and EC2, from a file, or from a command's output.
//
// Its rule: it returns the whole fleet or an error. A missing page, an invalid file or a failed command is an error, since
// a machine that was not read would be removed from DNS.
package fleet
