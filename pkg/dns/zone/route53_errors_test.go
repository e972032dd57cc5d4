package zone_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone/zonetest"
)

// answered is an error with an answer of this status.
func answered(status int, err error) error {
	return &smithy.OperationError{ServiceID: "Route 53", OperationName: "X", Err: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}}, Err: err}}
}

// What became of a change decides whether another try helps: only an answer says that nothing was done.
func TestRoute53Outcomes(t *testing.T) {
	conflict, unknown, throttled := reconcile.ErrConflict, reconcile.ErrUnknownOutcome, reconcile.ErrThrottled
	sent := func(op string) error {
		return &smithyhttp.RequestSendError{Err: &net.OpError{Op: op, Net: "tcp", Err: errors.New("broken pipe")}}
	}
	refusal := func(texts ...string) error {
		return answered(400, &types.InvalidChangeBatch{Messages: texts, Message: aws.String("see the messages")})
	}
	exists, differs, gone := "Tried to create a, but it already exists", "but the values provided do not match the current values", "Tried to delete b, but it was not found"
	for name, tc := range map[string]struct {
		err  error
		want error    // nil: none of the three
		says []string // of such an error
	}{
		"one set is there":           {err: refusal(exists), want: conflict},
		"all complaints are stale":   {err: refusal(exists, differs, gone), want: conflict},
		"a complaint is another one": {err: refusal(exists, "the name is too long"), says: []string{exists, "the name is too long"}},
		"the first is another one":   {err: refusal("the name is too long", exists), says: []string{exists, "the name is too long"}},
		"without a list":             {err: answered(400, &types.InvalidChangeBatch{Message: &gone}), want: conflict},
		"a record in the way":        {err: refusal(exists, "RRSet of type A conflicts: conflicting RRSet of type CNAME"), says: []string{"conflicting RRSet", "remove the record"}},
		"it has failed":              {err: answered(500, errors.New("internal")), want: unknown},
		"it is not there":            {err: answered(503, errors.New("unavailable")), want: unknown},
		"half an answer":             {err: answered(200, errors.New("unexpected EOF")), want: unknown},
		"a redirection":              {err: answered(300, errors.New("elsewhere")), says: []string{"elsewhere"}},
		"refused":                    {err: answered(403, &smithy.GenericAPIError{Code: "AccessDenied"}), says: []string{"AccessDenied", "IAM"}},
		"no such zone":               {err: answered(404, &types.NoSuchHostedZone{}), says: []string{"Z1", "find the zone by its name"}},
		"slow down":                  {err: answered(400, &smithy.GenericAPIError{Code: "Throttling"}), want: throttled},
		"an unknown error":           {err: errors.New("no idea"), says: []string{"no idea"}},
		"never sent":                 {err: sent("dial"), says: []string{"broken pipe"}},
		"never sent, no answer":      {err: answered(0, sent("dial")), says: []string{"broken pipe"}},
		"sent":                       {err: sent("read"), want: unknown},
		"sent, and nothing more":     {err: &smithyhttp.RequestSendError{Err: errors.New("EOF")}, want: unknown},
		"sent, no answer":            {err: answered(0, sent("read")), want: unknown},
		"the caller has left":        {err: &smithy.CanceledError{Err: context.Canceled}, want: unknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t, change: tc.err}
			err := in(t, s, "Z1").CompareAndSwap(t.Context(), zonetest.Cluster, before, after)
			if len(s.sent) != 1 {
				t.Errorf("%d changes were sent", len(s.sent))
			}
			hasForm(t, err)
			if strings.Contains(err.Error(), "aws sso login") {
				t.Errorf("there are credentials: %v", err)
			}
			if tc.want == nil {
				says(t, err, append(tc.says, "demo"))
				return
			}
			for _, e := range []error{conflict, unknown, throttled} {
				if errors.Is(err, e) != errors.Is(tc.want, e) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// Whoever has no credentials is told how to get some, and not where the reason is another one.
func TestRoute53WithoutCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		says     string
		signsOut bool
	}{
		"none":        {err: errors.New("no EC2 IMDS role found"), says: "aws sso login", signsOut: true},
		"expired":     {err: &smithy.GenericAPIError{Code: "ExpiredToken"}, says: "check the clock"},
		"unreachable": {err: &smithyhttp.RequestSendError{Err: errors.New("connection refused")}, says: "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			api := route53.New(route53.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
				Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, tc.err })})
			_, err := in(t, api, "Z1").Read(t.Context(), "demo")
			says(t, err, []string{tc.says})
			if strings.Contains(err.Error(), "aws sso login") != tc.signsOut {
				t.Errorf("%v", err)
			}
		})
	}
	api := route53.New(route53.Options{Region: "eu-central-1", BaseEndpoint: aws.String("http://127.0.0.1:1"),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "k", SecretAccessKey: "s"}, nil
		})})
	_, err := in(t, api, "Z1").Read(t.Context(), "demo")
	says(t, err, []string{"connection refused"})
	if strings.Contains(err.Error(), "aws sso login") {
		t.Errorf("%v", err)
	}
}

// texts are n TXT values of so many characters together, in sets of at most 400.
func texts(n, characters int) []record.Set {
	var out []record.Set
	for i := range n {
		if i%400 == 0 {
			out = append(out, record.Set{Name: fmt.Sprintf("x%d.demo.k8s.", i/400), Type: record.TXT, TTL: 5 * time.Second})
		}
		size := characters / n
		if i == 0 {
			size += characters % n
		}
		last := &out[len(out)-1]
		last.Values = append(last.Values, strings.Repeat("x", size))
	}
	return out
}

// A batch is held to the quotas before it costs a request: Route 53 counts the values and the characters of all that is
// deleted and created.
func TestRoute53Quotas(t *testing.T) {
	big := texts(401, 401)
	for name, tc := range map[string]struct {
		remove, create []record.Set
		fits           bool
	}{
		"nothing":                   {fits: true},
		"as many values":            {remove: texts(500, 500), create: texts(500, 500), fits: true},
		"a value more":              {remove: texts(500, 500), create: texts(501, 501)},
		"only values that go":       {remove: texts(1001, 1001)},
		"as many characters":        {remove: texts(100, 16000), create: texts(100, 16000), fits: true},
		"a character more":          {remove: texts(100, 16000), create: texts(100, 16001)},
		"a set over the limit":      {create: []record.Set{{Name: "x.demo.k8s.", Type: record.TXT, Values: slices.Concat(big[0].Values, big[1].Values)}}},
		"a set over the limit goes": {remove: []record.Set{{Name: "x.demo.k8s.", Type: record.TXT, Values: slices.Concat(big[0].Values, big[1].Values)}}, fits: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t}
			err := in(t, s, "Z1").CompareAndSwap(t.Context(), zonetest.Cluster, tc.remove, tc.create)
			if want := tc.fits && name != "nothing"; len(s.sent) > 0 != want {
				t.Errorf("%d changes were sent", len(s.sent))
			}
			if tc.fits && err != nil {
				t.Error(err)
			}
			if !tc.fits {
				says(t, err, []string{"demo", "limit"})
			}
		})
	}
}
