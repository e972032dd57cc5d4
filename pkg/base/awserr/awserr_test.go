package awserr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
)

func TestKindOf(t *testing.T) {
	for code, want := range map[string]awserr.Kind{
		"AccessDenied": awserr.Denied, "AccessDeniedException": awserr.Denied, "UnauthorizedOperation": awserr.Denied, "OptInRequired": awserr.Denied,
		"InvalidClientTokenId": awserr.Unknown, "ExpiredTokenException": awserr.Expired, "RequestExpired": awserr.Clock, "SignatureDoesNotMatch": awserr.Clock,
		"Throttling": awserr.Throttled, "PriorRequestNotComplete": awserr.Throttled, "NoSuchHostedZone": awserr.Other, "": awserr.Other,
	} {
		err := fmt.Errorf("reading: %w", &smithy.GenericAPIError{Code: code})
		if got := awserr.KindOf(err); got != want || awserr.Code(err) != code {
			t.Errorf("%s is %v, want %v", code, got, want)
		}
	}
	if awserr.KindOf(errors.New("AccessDenied")) != awserr.Other || awserr.KindOf(nil) != awserr.Other {
		t.Error("what is not AWS's has a kind")
	}
}

func TestExplain(t *testing.T) {
	for code, want := range map[string]string{
		"UnauthorizedOperation": "(allow ec2:DescribeVolumes)", "ExpiredToken": "sign in again", "AuthFailure": "sign in again", "RequestTimeTooSkewed": "check the clock",
	} {
		err := &smithy.GenericAPIError{Code: code, Message: "no"}
		if got := awserr.Explain(err, "ec2:DescribeVolumes"); !errors.Is(got, err) || !strings.Contains(got.Error(), want) {
			t.Errorf("%v, want %s", got, want)
		}
	}
	for _, err := range []error{nil, errors.New("no route"), &smithy.GenericAPIError{Code: "Throttling"}} {
		if got := awserr.Explain(err, "ec2:DescribeVolumes"); !errors.Is(got, err) || fmt.Sprint(got) != fmt.Sprint(err) {
			t.Errorf("%v became %v", err, got)
		}
	}
}
