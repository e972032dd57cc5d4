package awsfake

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// skew is how far a signature's date may differ from the service's clock; a presigned URL may be older.
const (
	skew          = 5 * time.Minute
	presignedLife = 15 * time.Minute
)

// need is one permission that a call requires.
type need struct {
	action, arn string
	// context has the condition keys of the service, the resource's tags among them.
	context map[string][]string
	// refusal is answered in place of the service's usual one; nil is the usual one.
	refusal *Error
}

// resourced is a service that knows the permissions of its calls, which all are.
type resourced interface {
	// needs runs with the account locked. A call without needs is open to every known caller.
	needs(c *call) []need
}

// authorize refuses a call that is not signed by known credentials, or whose caller lacks a permission.
func (a *Account) authorize(ctx context.Context, s service, c *call) error {
	if c.Service == "sts" && c.Action == webIdentity {
		return nil // the token is the proof, and STS looks at no other
	}
	who, err := a.authenticate(ctx, c)
	if err != nil || who == nil {
		return err
	}
	c.Caller = who
	for _, n := range s.(resourced).needs(c) {
		if err := permit(c, n); err != nil {
			return err
		}
		a.tally.use(who.name, n.action)
	}
	return nil
}

// permit refuses a call whose caller lacks one permission.
func permit(c *call, n need) error {
	who := c.Caller
	q, err := n.question()
	if err != nil {
		return err
	}
	maps.Copy(q.values, map[string][]string{"aws:requestedregion": {c.Region}, "aws:securetransport": {"true"}})
	maps.Copy(q.values, who.context)
	switch v := judge(who.policies, n.action, n.arn, q); {
	case v == allowed:
		return nil
	case n.refusal != nil:
		return n.refusal
	default:
		return forbidden(c.Service, who.arn, n, v)
	}
}

// authenticate returns who has signed a call; nil if the account is open and the caller may do everything.
func (a *Account) authenticate(ctx context.Context, c *call) (*principal, error) {
	if _, known := a.identities.keys[c.Key]; !known && !a.identities.closed() {
		if policy, ok := a.policies[c.Key]; ok {
			return &principal{arn: "arn:aws:iam::" + owner + ":user/" + c.Key, id: c.Key, policies: []Policy{policy}}, nil
		}
		return nil, nil
	}
	k, known := a.identities.keys[c.Key]
	life, whole := c.Signature.life()
	date, err := time.Parse(dateFormat, c.Signature.date)
	switch {
	case !whole:
		return nil, refuse("IncompleteSignature", "X-Amz-Expires must be a number of seconds from 1 to %d", maxExpires)
	case !known || c.Signature.token != k.Token:
		return nil, unknownKey(c.Service)
	case !k.Expires.IsZero() && !c.Now.Before(k.Expires):
		return nil, expiredToken(c.Service)
	case err != nil || !c.Signature.valid(ctx, k.Credentials):
		return nil, badSignature(c.Service, "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. Consult the service documentation for details.")
	case a.dated && c.Now.Sub(date) > life:
		return nil, skewed(c.Service, fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - %.0f min.)", c.Signature.date, stampDate(c.Now.Add(-life)), stampDate(c.Now), life.Minutes()))
	case a.dated && date.Sub(c.Now) > skew:
		return nil, skewed(c.Service, fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + 5 min.)", c.Signature.date, stampDate(c.Now.Add(skew)), stampDate(c.Now)))
	}
	who := k.principal()
	return &who, nil
}

func stampDate(t time.Time) string { return t.UTC().Format(dateFormat) }

// speaksJSON reports whether a service's errors are those of the JSON protocols ("Common Error Types" of its API
// reference); the others' are those of the Query protocol, and EC2's its own ("Error codes for the Amazon EC2 API").
func speaksJSON(service string) bool { return service == "ssm" || service == "sqs" || service == "ebs" }

const invalidToken = "The security token included in the request is invalid."

func unknownKey(service string) error {
	switch {
	case service == "ec2":
		return authFailure()
	case speaksJSON(service):
		return refuse("UnrecognizedClientException", invalidToken)
	}
	if service == "s3" {
		return &Error{Status: http.StatusForbidden, Code: "InvalidAccessKeyId", Message: "The AWS Access Key Id you provided does not exist in our records."}
	}
	return &Error{Status: http.StatusForbidden, Code: "InvalidClientTokenId", Message: invalidToken}
}

func authFailure() error {
	return &Error{Status: http.StatusUnauthorized, Code: "AuthFailure", Message: "AWS was not able to validate the provided access credentials"}
}

func badSignature(service, message string) error {
	switch {
	case service == "ec2":
		return authFailure()
	case speaksJSON(service):
		return refuse("InvalidSignatureException", "%s", message)
	}
	return &Error{Status: http.StatusForbidden, Code: "SignatureDoesNotMatch", Message: message}
}

func skewed(service, message string) error {
	switch service {
	case "ec2":
		return refuse("RequestExpired", "Request has expired.")
	case "s3":
		return &Error{Status: http.StatusForbidden, Code: "RequestTimeTooSkewed", Message: "The difference between the request time and the current time is too large."}
	}
	return badSignature(service, message)
}

func expiredToken(service string) error {
	const message = "The security token included in the request is expired"
	switch {
	case service == "ec2":
		return refuse("RequestExpired", "Request has expired.")
	case speaksJSON(service):
		return refuse("ExpiredTokenException", message)
	}
	if service == "s3" {
		return refuse("ExpiredToken", "The provided token has expired.")
	}
	return &Error{Status: http.StatusForbidden, Code: "ExpiredToken", Message: message}
}

// forbidden returns a service's refusal of a call that the caller's policies do not allow.
func forbidden(service, arn string, n need, v verdict) error {
	why := "because no identity-based policy allows the " + n.action + " action"
	if v == denied {
		why = "with an explicit deny in an identity-based policy"
	}
	message := fmt.Sprintf("User: %s is not authorized to perform: %s on resource: %s %s", arn, n.action, n.arn, why)
	switch {
	case service == "ec2":
		return &Error{Status: http.StatusForbidden, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation. " + message}
	case speaksJSON(service):
		return refuse("AccessDeniedException", "%s", message)
	}
	return &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: message}
}
