package awsfake

// sts is the part of the Security Token Service that answers who the caller is.
type sts struct{}

// serve carries out one call of its Query protocol (version 2011-06-15).
func (s sts) serve(c *call) (any, error) {
	if c.Action != "GetCallerIdentity" {
		return nil, refuse("InvalidAction", "awsfake does not model sts:%s", c.Action)
	}
	if c.Form.Get("Version") != "2011-06-15" {
		return nil, refuse("NoSuchVersion", "The requested version (%s) of service AWSSecurityTokenService does not exist", c.Form.Get("Version"))
	}
	out := struct{ Arn, UserId, Account string }{"arn:aws:iam::" + owner + ":root", owner, owner}
	if c.Caller != nil {
		out.Arn, out.UserId = c.Caller.arn, c.Caller.id
	}
	return out, nil
}

// needs: "No permissions are required to perform this operation", whatever a policy denies (API reference).
func (sts) needs(*call) []need { return nil }
