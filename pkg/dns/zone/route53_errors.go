package zone

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// explain turns what Route 53 answered to any call into an error that says what to do.
func (z *Route53) explain(err error) error {
	var none *types.NoSuchHostedZone
	var api smithy.APIError
	var send *smithyhttp.RequestSendError
	switch {
	case errors.As(err, &none):
		return fmt.Errorf("there is no hosted zone %s in this account: name another, or leave it out to find the zone by its name: %w", z.id, err)
	case awserr.KindOf(err) == awserr.Throttled:
		return fmt.Errorf("%w: %w", err, reconcile.ErrThrottled)
	case !errors.As(err, &api) && !errors.As(err, &send) && strings.Contains(err.Error(), "get identity: get credentials"):
		return fmt.Errorf("%w (sign in with aws configure or aws sso login, or run where an instance or function has a role)", err)
	}
	return awserr.Explain(err, "route53's action for this role in IAM, for this zone and these names")
}

// outcome says what became of a change.
func (z *Route53) outcome(err error) error {
	var batch *types.InvalidChangeBatch
	if errors.As(err, &batch) {
		return refusedBatch(batch)
	}
	if mayHaveArrived(err) {
		return fmt.Errorf("%w: %w", err, reconcile.ErrUnknownOutcome)
	}
	return z.explain(err)
}

// The texts of Route 53's errors for a batch whose base is stale.
var staleTexts = []string{"but it already exists", "values provided do not match the current values", "but it was not found"}

// refusedBatch: only when every complaint is about a stale base does another try help.
func refusedBatch(e *types.InvalidChangeBatch) error {
	texts := e.Messages
	if len(texts) == 0 {
		texts = []string{e.ErrorMessage()}
	}
	text := strings.Join(texts, "; ")
	if strings.Contains(text, "conflicting RRSet of type") {
		return fmt.Errorf("%s: remove the record that is in the way, or give the cluster another name", text)
	}
	for _, t := range texts {
		if !containsAny(t, staleTexts) {
			return fmt.Errorf("Route 53 refuses the batch: %s", text) //nolint:staticcheck // the service's name
		}
	}
	return fmt.Errorf("%s: %w", text, reconcile.ErrConflict)
}

func containsAny(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

// mayHaveArrived reports whether a request may have been carried out although it ended with an error: when it
// left, and no answer says that it was refused.
func mayHaveArrived(err error) bool {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.HTTPStatusCode() > 0 {
		return answer.HTTPStatusCode() >= http.StatusInternalServerError || answer.HTTPStatusCode() < http.StatusMultipleChoices
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	var send *smithyhttp.RequestSendError
	var cancelled *smithy.CanceledError
	return errors.As(err, &send) || errors.As(err, &cancelled)
}
