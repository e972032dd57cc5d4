package deployment

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
)

// prefixes maps the SDK's names of services to the prefixes of IAM actions.
func prefixes() map[string]string {
	return map[string]string{
		"CloudFormation": "cloudformation", "Lambda": "lambda", "SQS": "sqs", "EventBridge": "events", "CloudWatch": "cloudwatch",
		"CloudWatch Logs": "logs", "IAM": "iam", "Auto Scaling": "autoscaling", "EC2": "ec2", "Route 53": "route53",
	}
}

// Explain converts an error of AWS to one of doctor's: not permitted, or not there; or returns it.
func Explain(err error) error {
	var api smithy.APIError
	if err == nil || !errors.As(err, &api) {
		return err
	}
	short := fmt.Errorf("%s: %s", api.ErrorCode(), api.ErrorMessage())
	switch code, what := api.ErrorCode(), awserr.KindOf(err); {
	case what == awserr.Denied:
		return &doctor.Refused{Permission: permission(err), Err: short}
	case code == "ResourceNotFoundException", code == "NoSuchEntity", strings.HasSuffix(code, "QueueDoesNotExist"), strings.HasSuffix(code, "NonExistentQueue"),
		code == "NoSuchHostedZone", code == "ValidationError" && strings.Contains(api.ErrorMessage(), "does not exist"):
		return fmt.Errorf("%w: %w", doctor.ErrNotThere, short)
	case what.Credentials():
		return fmt.Errorf("%w (%s)", short, awserr.SignIn)
	}
	return err
}

// permission returns the IAM action of the call, which has the call's name in every service that is read here.
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
