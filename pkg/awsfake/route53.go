package awsfake

import "time"

// route53Rate is Route 53's limit for all calls of an account (Developer Guide, "Quotas", API requests).
const route53Rate = 5

// Route53 is the account's DNS service. Its methods may be called by several goroutines.
type Route53 struct {
	account     *Account
	propagation time.Duration
}

func newRoute53(a *Account, propagation time.Duration) *Route53 {
	return &Route53{account: a, propagation: propagation}
}

// Route53 is the account's DNS service.
func (a *Account) Route53() *Route53 { return a.route53 }

func (r *Route53) serve(c *call) (any, error) {
	return nil, refuse("InvalidInput", "awsfake does not model %s", c.Action)
}
