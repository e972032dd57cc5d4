package deployment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
)

// prefixes are what IAM calls a service, by what the SDK calls it.
func prefixes() map[string]string {
	return map[string]string{
		"CloudFormation": "cloudformation", "Lambda": "lambda", "SQS": "sqs", "EventBridge": "events", "CloudWatch": "cloudwatch",
		"CloudWatch Logs": "logs", "IAM": "iam", "Auto Scaling": "autoscaling", "EC2": "ec2", "Route 53": "route53",
	}
}

// Explain is what doctor makes of an error of AWS's: a part that may not be read, that is not there, or the error.
func Explain(err error) error { return explain(err) }

func explain(err error) error {
	var api smithy.APIError
	if err == nil || !errors.As(err, &api) {
		return err
	}
	short := fmt.Errorf("%s: %s", api.ErrorCode(), api.ErrorMessage())
	switch code := api.ErrorCode(); {
	case strings.HasPrefix(code, "AccessDenied"), strings.HasPrefix(code, "UnauthorizedOperation"), code == "AuthorizationError", code == "NotAuthorized":
		return &doctor.Refused{Permission: permission(err), Err: short}
	case code == "ResourceNotFoundException", code == "NoSuchEntity", strings.HasSuffix(code, "QueueDoesNotExist"), strings.HasSuffix(code, "NonExistentQueue"),
		code == "NoSuchHostedZone", code == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return fmt.Errorf("%w: %w", doctor.ErrNotThere, short)
	case strings.HasPrefix(code, "ExpiredToken"), code == "InvalidClientTokenId", code == "UnrecognizedClientException", code == "AuthFailure", code == "SignatureDoesNotMatch":
		return fmt.Errorf("%w (AWS does not take these credentials: sign in again, and check the clock)", short)
	}
	return err
}

// permission is the action that the call needs, which has the call's name in every service that is read here.
func permission(err error) string {
	var op *smithy.OperationError
	if !errors.As(err, &op) {
		return "this call"
	}
	service := op.ServiceID
	if p, ok := prefixes()[service]; ok {
		service = p
	}
	return service + ":" + op.OperationName
}
