package awsfake

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// The bounds of a session, in seconds ("AssumeRoleWithWebIdentity", API reference), and of a role that says nothing else.
const (
	leastSession = 900
	roleSession  = 3600
)

// webAlgorithms are the signatures that STS takes ("Federated identity providers for workforce and workloads": RSA, and since November 2024
// ECDSA).
var webAlgorithms = []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512}

// mostPublished is more than any document of an issuer has, in bytes.
const mostPublished = 1 << 20

// maxWebKeys is how many keys of either kind STS reads of an issuer ("IAM and AWS STS quotas").
const maxWebKeys = 100

// webProvider is an IAM OIDC identity provider.
type webProvider struct {
	// name is the URL without its scheme, which ends the ARN and begins condition keys.
	name    string
	clients []string
}

// published is what STS has read of the issuer that a token names; err is why there is nothing.
type published struct {
	keys jose.JSONWebKeySet
	err  error
}

const (
	noVerificationKey = "Couldn't retrieve verification key from your identity provider,  please reference AssumeRoleWithWebIdentity documentation for requirements"
	notAToken         = "The ID Token provided is not a valid JWT. (You may see this error if you sent an Access Token)"
)

func invalidWebToken(format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: "InvalidIdentityToken", Message: fmt.Sprintf(format, args...)}
}

// AddOIDCProvider makes an IAM OIDC identity provider for an issuer's URL, and returns its ARN. clients are the audiences that it takes. It
// fails as IAM's CreateOpenIDConnectProvider does.
func (a *Account) AddOIDCProvider(issuer string, clients ...string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.identities.addProvider(issuer, clients)
}

func (i *identities) addProvider(issuer string, clients []string) (string, error) {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.Port() != "" || len(issuer) > 255:
		return "", refuse("InvalidInput", "Invalid Open ID Connect Provider URL")
	case len(clients) > 100:
		return "", refuse("LimitExceeded", "Cannot exceed quota for ClientIdsPerOpenIdConnectProvider: 100")
	}
	p := webProvider{name: strings.TrimSuffix(strings.TrimPrefix(issuer, "https://"), "/"), clients: slices.Clone(clients)}
	if _, there := i.providers[p.arn()]; there {
		return "", &Error{Status: http.StatusConflict, Code: "EntityAlreadyExists", Message: "Provider with url " + issuer + " already exists."}
	}
	i.providers[p.arn()] = p
	return p.arn(), nil
}

func (p webProvider) arn() string { return "arn:aws:iam::" + owner + ":oidc-provider/" + p.name }

// SetTrust gives a role a trust policy in JSON, for those who come with tokens. It fails as IAM does (MalformedPolicyDocument), and if
// the policy has more than awsfake models.
func (a *Account) SetTrust(role string, document []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, err := a.identities.role(role)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(document, &v); err != nil {
		return refuse("MalformedPolicyDocument", "%v", err)
	}
	return r.setTrust(v)
}

// trust is a statement of a role's trust policy about identity providers.
type trust struct {
	deny       bool
	providers  []string
	conditions []Condition
}

// setTrust keeps the statements about AssumeRoleWithWebIdentity; others are for services, which take roles without a call.
func (r *role) setTrust(v any) error {
	if err := checkTrust(v); err != nil {
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return refuse("MalformedPolicyDocument", "%v", err)
	}
	var d struct {
		Statement json.RawMessage
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return refuse("MalformedPolicyDocument", "%v", err)
	}
	if len(d.Statement) > 0 && d.Statement[0] == '{' {
		d.Statement = append(append(json.RawMessage{'['}, d.Statement...), ']')
	}
	var list []struct {
		Effect    string
		Action    texts
		Principal map[string]texts
		Condition map[string]map[string]texts
	}
	if err := json.Unmarshal(d.Statement, &list); err != nil {
		return refuse("MalformedPolicyDocument", "%v", err)
	}
	r.trusts = nil
	for _, s := range list {
		if len(s.Principal["Federated"]) == 0 || !slices.Contains(s.Action, "sts:"+webIdentity) {
			continue
		}
		one := trust{deny: s.Effect == "Deny", providers: s.Principal["Federated"]}
		for _, operator := range sortedKeys(s.Condition) {
			for _, key := range sortedKeys(s.Condition[operator]) {
				c := Condition{Operator: operator, Key: key, Patterns: s.Condition[operator][key]}
				if !c.known() {
					return refuse("MalformedPolicyDocument", "the condition operator %s is not modelled", operator)
				}
				one.conditions = append(one.conditions, c)
			}
		}
		r.trusts = append(r.trusts, one)
	}
	return nil
}

// lets reports whether the role may be taken with a token of a provider: one statement allows it, and none denies it.
func (r *role) lets(provider string, context map[string][]string) bool {
	ok := false
	for _, t := range r.trusts {
		if !slices.Contains(t.providers, provider) || slices.ContainsFunc(t.conditions, func(c Condition) bool { return !c.holds(context) }) {
			continue
		}
		if t.deny {
			return false
		}
		ok = true
	}
	return ok
}

// webClaims are what STS reads of a token.
type webClaims struct {
	jwt.Claims
	AuthMethods texts `json:"amr"`
}

// readIssuer reads the documents of the issuer that a token names, if the account knows it: nobody has STS ask just any address.
func (a *Account) readIssuer(ctx context.Context, token string) published {
	t, err := jwt.ParseSigned(token, webAlgorithms)
	var claims webClaims
	if err != nil || t.UnsafeClaimsWithoutVerification(&claims) != nil {
		return published{} // the call is refused for its token
	}
	a.mu.Lock()
	_, known := a.identities.providers[webProvider{name: strings.TrimPrefix(claims.Issuer, "https://")}.arn()]
	a.mu.Unlock()
	if !known {
		return published{}
	}
	var described struct {
		Issuer  string
		JWKSURI string `json:"jwks_uri"`
	}
	if err := a.fetch(ctx, claims.Issuer+"/.well-known/openid-configuration", &described); err != nil {
		return published{err: err}
	}
	if described.Issuer != claims.Issuer || !strings.HasPrefix(described.JWKSURI, "https://") {
		return published{err: invalidWebToken(noVerificationKey)}
	}
	var out published
	out.err = a.fetch(ctx, described.JWKSURI, &out.keys)
	return out
}

// fetch reads a JSON document as anybody can: from one of the account's buckets, or from the Internet.
func (a *Account) fetch(ctx context.Context, address string, into any) error {
	data, err := a.read(ctx, address)
	if err != nil {
		return &Error{Status: http.StatusBadRequest, Code: "IDPCommunicationError", Message: "Error communicating with the identity provider: " + err.Error()}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return invalidWebToken(noVerificationKey)
	}
	return nil
}

func (a *Account) read(ctx context.Context, address string) (data []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	if bucket, ours := strings.CutSuffix(u.Host, ".s3."+HomeRegion+".amazonaws.com"); ours {
		return a.S3().Public(bucket, strings.TrimPrefix(u.Path, "/"))
	}
	if a.web == nil {
		return nil, fmt.Errorf("%s: awsfake has no Options.Web", u.Host)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", address, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, mostPublished))
}

// webAnswer is the answer of AssumeRoleWithWebIdentity.
type webAnswer struct {
	SubjectFromWebIdentityToken, Audience, Provider string
	AssumedRoleUser                                 struct{ Arn, AssumedRoleId string }
	Credentials                                     struct{ AccessKeyId, SecretAccessKey, SessionToken, Expiration string }
}

// assumeWithToken gives a role's credentials to whoever has a token that the role's trust policy takes.
func (s sts) assumeWithToken(c *call) (any, error) {
	p := params(c.Form)
	name, session := p.get("RoleArn"), p.get("RoleSessionName")
	seconds, err := p.integer("DurationSeconds", roleSession)
	if err != nil {
		return nil, err
	}
	for field := range c.Form {
		if !slices.Contains([]string{"Action", "Version", "RoleArn", "RoleSessionName", "WebIdentityToken", "DurationSeconds"}, field) {
			return nil, refuse("InvalidParameterValue", "awsfake does not model %s of %s", field, webIdentity)
		}
	}
	switch token := p.get("WebIdentityToken"); {
	case len(token) < 4 || len(token) > 20000:
		return nil, malformed("1 validation error detected: Value at 'webIdentityToken' failed to satisfy constraint: Member must have length between 4 and 20000")
	case !sessionName.MatchString(session):
		return nil, malformed("1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", session)
	case seconds < leastSession:
		return nil, malformed("1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to %d", seconds, leastSession)
	}
	short, ok := strings.CutPrefix(name, "arn:aws:iam::")
	if !ok {
		return nil, malformed("Request ARN is invalid")
	}
	claims, provider, err := s.verified(c)
	if err != nil {
		return nil, err
	}
	audience := claims.Audience[slices.IndexFunc(claims.Audience, func(a string) bool { return slices.Contains(provider.clients, a) })]
	context := map[string][]string{
		strings.ToLower(provider.name + ":aud"): {audience}, strings.ToLower(provider.name + ":sub"): {claims.Subject},
		strings.ToLower(provider.name + ":amr"): claims.AuthMethods, "aws:federatedprovider": {provider.arn()}, "sts:rolesessionname": {session},
	}
	account, path, _ := strings.Cut(short, ":role/")
	r := s.account.identities.roles["role/"+path]
	if account != owner || r == nil || !r.lets(provider.arn(), context) {
		// The same for a role that does not exist: nobody learns which do.
		return nil, &Error{Status: http.StatusForbidden, Code: "AccessDenied", Message: "Not authorized to perform sts:" + webIdentity}
	}
	if longest := cmp.Or(r.session, roleSession); seconds > longest {
		return nil, malformed("The requested DurationSeconds exceeds the MaxSessionDuration set for this role.")
	}
	made := s.account.identities.issue(r, session, c.Now.Add(time.Duration(seconds)*time.Second))
	out := webAnswer{SubjectFromWebIdentityToken: claims.Subject, Audience: audience, Provider: provider.arn()}
	who := key{Credentials: made, role: r, session: session}.principal()
	out.AssumedRoleUser.Arn, out.AssumedRoleUser.AssumedRoleId = who.arn, who.id
	out.Credentials.AccessKeyId, out.Credentials.SecretAccessKey, out.Credentials.SessionToken = made.AccessKey, made.Secret, made.Token
	out.Credentials.Expiration = stamp(made.Expires)
	return out, nil
}

// verified checks the token in the order in which STS is known to answer: its form, its provider, its signature, its time, its
// audience.
func (s sts) verified(c *call) (claims webClaims, provider webProvider, err error) {
	t, err := jwt.ParseSigned(c.Form.Get("WebIdentityToken"), webAlgorithms)
	if err != nil || t.UnsafeClaimsWithoutVerification(&claims) != nil {
		return claims, provider, invalidWebToken(notAToken)
	}
	name, https := strings.CutPrefix(claims.Issuer, "https://")
	provider, known := s.account.identities.providers[webProvider{name: name}.arn()]
	switch {
	case !https:
		return claims, provider, invalidWebToken("Issuer must be a valid URL")
	case !known:
		return claims, provider, invalidWebToken("No OpenIDConnect provider found in your account for %s", claims.Issuer)
	case c.published.err != nil:
		return claims, provider, c.published.err
	case claims.Subject == "" || claims.Expiry == nil || claims.IssuedAt == nil || len(claims.Audience) == 0:
		return claims, provider, invalidWebToken("Missing a required claim: one of sub, aud, exp and iat")
	}
	keys := c.published.keys.Key(t.Headers[0].KeyID)
	if len(c.published.keys.Keys) > 2*maxWebKeys || len(keys) != 1 || t.Headers[0].KeyID == "" || !keys[0].IsPublic() || keys[0].Algorithm != "" && keys[0].Algorithm != t.Headers[0].Algorithm {
		return claims, provider, invalidWebToken(noVerificationKey)
	}
	claims = webClaims{}
	if t.Claims(keys[0].Key, &claims) != nil {
		return claims, provider, invalidWebToken("Provided Token signature is invalid")
	}
	switch now := c.Now; {
	case !now.Before(claims.Expiry.Time()):
		return claims, provider, &Error{Status: http.StatusBadRequest, Code: "ExpiredTokenException",
			Message: fmt.Sprintf("Token expired: current date/time %d must be before the expiration date/time%d", now.Unix(), claims.Expiry.Time().Unix())}
	case claims.NotBefore != nil && now.Add(skew).Before(claims.NotBefore.Time()), now.Add(skew).Before(claims.IssuedAt.Time()):
		return claims, provider, invalidWebToken("Token is not yet valid")
	case !slices.ContainsFunc(claims.Audience, func(a string) bool { return slices.Contains(provider.clients, a) }):
		return claims, provider, invalidWebToken("Incorrect token audience")
	}
	return claims, provider, nil
}
