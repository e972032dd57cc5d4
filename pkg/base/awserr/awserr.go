// Package awserr classifies errors of AWS, and names the permission that is missing.
//
// Its rule: error codes that mean the same are listed here and nowhere else, since each service has its own. Codes that
// only one service has belong to its adapter.
package awserr

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kind is a class of errors that every service can return.
type Kind int

// The kinds.
const (
	// Other is an error that is not from AWS, or specific to one service.
	Other Kind = iota
	// Denied: the caller is authenticated but not authorized.
	Denied
	// Unknown: AWS does not know the credentials. Expired: they are no longer valid.
	Unknown
	Expired
	// Clock: the signature is too old, too new or wrong, which a wrong clock causes.
	Clock
	// Throttled: the same request may succeed later.
	Throttled
)

// codes are the error codes of EC2, Route 53, Systems Manager, S3, STS, CloudFormation, SQS and the services that share
// their common errors ("Common Errors" in each API reference). AssumeRoleUnauthorizedAccess is the metadata service's:
// the role exists, but its trust policy does not let EC2 assume it.
var codes = map[Kind][]string{
	Denied:    {"AuthorizationError", "NotAuthorized", "OptInRequired", "AssumeRoleUnauthorizedAccess"},
	Unknown:   {"InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure", "InvalidAccessKeyId"},
	Expired:   {"ExpiredToken", "ExpiredTokenException"},
	Clock:     {"RequestExpired", "RequestTimeTooSkewed", "InvalidSignatureException", "SignatureDoesNotMatch"},
	Throttled: {"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException", "PriorRequestNotComplete", "SlowDown"},
}

// Code returns the AWS error code of err, or "" if it has none.
func Code(err error) string {
	var api interface {
		error
		ErrorCode() string
	}
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// KindOf returns the kind of err; Other for nil.
func KindOf(err error) Kind {
	code := Code(err)
	if strings.HasPrefix(code, "AccessDenied") || strings.HasPrefix(code, "UnauthorizedOperation") {
		return Denied
	}
	for kind, all := range codes {
		if slices.Contains(all, code) {
			return kind
		}
	}
	return Other
}

// Credentials reports whether AWS rejected the credentials; SignIn is the next step.
func (k Kind) Credentials() bool { return k == Unknown || k == Expired || k == Clock }

// SignIn is the next step where AWS rejects the credentials.
const SignIn = "AWS does not take these credentials: sign in again, and check the clock"

// requestID is where the SDK's errors have the id of the request.
var requestID = regexp.MustCompile(`, RequestID: [^,]*`)

// Steady is the text of err without the id of its request: a call that is refused again for the same reason has the same text.
func Steady(err error) string { return requestID.ReplaceAllString(err.Error(), "") }

// Explain adds the next step to an error: the action to allow (needed, such as "ec2:DescribeVolumes"), or to sign in
// again. Other errors, and nil, are returned unchanged.
func Explain(err error, needed string) error {
	switch kind := KindOf(err); {
	case kind == Denied:
		return fmt.Errorf("%w (allow %s)", err, needed)
	case kind.Credentials():
		return fmt.Errorf("%w (%s)", err, SignIn)
	}
	return err
}
