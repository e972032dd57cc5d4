// Package awstest proves images/aws.pkr.hcl: the real Packer with the real amazon plugin and ours bakes
// over a real ssh connection, from RunInstances to CreateImage.
//
// Its rule: only AWS and the instance are stood in for, and neither by code of ours that could agree
// with a mistake of ours: the APIs are moto's, and the instance is Debian with its own ssh server in a
// change of root. What moto keeps no record of is read from the requests themselves.
package awstest
