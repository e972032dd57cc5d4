package awsfake

import (
	"context"
	"net/http"
)

// sts is the part of the Security Token Service that answers who the caller is, and that takes the tokens of identity providers.
type sts struct{ account *Account }

// webIdentity is the one action that nobody signs: the token is the proof.
const webIdentity = "AssumeRoleWithWebIdentity"

// serve carries out one call of its Query protocol (version 2011-06-15).
func (s sts) serve(c *call) (any, error) {
	if c.Form.Get("Version") != "2011-06-15" && (c.Action == "GetCallerIdentity" || c.Action == webIdentity) {
		return nil, refuse("NoSuchVersion", "The requested version (%s) of service AWSSecurityTokenService does not exist", c.Form.Get("Version"))
	}
	switch c.Action {
	case "GetCallerIdentity":
		out := struct{ Arn, UserId, Account string }{"arn:aws:iam::" + owner + ":root", owner, owner}
		if c.Caller != nil {
			out.Arn, out.UserId = c.Caller.arn, c.Caller.id
		}
		return out, nil
	case webIdentity:
		return s.assumeWithToken(c)
	}
	return nil, refuse("InvalidAction", "awsfake does not model sts:%s", c.Action)
}

// needs: "No permissions are required to perform this operation", whatever a policy denies (API reference).
func (sts) needs(*call) []need { return nil }

// prepare reads the issuer's documents of a token before the account is locked: whoever serves them may be this account.
func (s sts) prepare(ctx context.Context, c *call) {
	if c.Action == webIdentity {
		c.published = s.account.readIssuer(ctx, c.Form.Get("WebIdentityToken"))
	}
}

// isUnsigned reports whether a request without a signature is for STS, which needs none for this action.
func isUnsigned(c *call, r *http.Request, body []byte) bool {
	if c.Service != "" || r.Method != http.MethodPost || readForm(body, &call{}) != nil {
		return false
	}
	form := &call{}
	return readForm(body, form) == nil && form.Action == webIdentity
}
