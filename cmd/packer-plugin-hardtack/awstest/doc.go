// Package awstest tests images/aws.pkr.hcl: Packer with the amazon plugin and this plugin bakes over an ssh
// connection, from RunInstances to CreateImage.
//
// Only AWS and the instance are replaced, and not by code of this project, which could share its mistakes: the APIs
// are moto's, and the instance is a chroot of Debian with its own ssh server. Values that moto does not keep are read
// from the requests themselves.
package awstest
