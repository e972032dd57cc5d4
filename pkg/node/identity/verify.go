package identity

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

const (
	// askTimeout bounds one call of STS, which answers in milliseconds.
	askTimeout = 5 * time.Second
	// maxAnswer bounds its answer, in bytes: it has half a kilobyte.
	maxAnswer = 16 << 10
	// maxProof bounds a proof, in bytes: a session token has one or two kilobytes.
	maxProof = 8 << 10
	// skew is how far the clock of the machine may be ahead; STS allows the same.
	skew = 5 * time.Minute
)

// Verifier asks STS who has signed a proof. It is safe for concurrent use.
type Verifier struct {
	// Load returns the masters' own configuration: its region, endpoint, partition and account are those of every proof.
	// It is called until it succeeds, since the metadata service may start later.
	Load    func(context.Context) (aws.Config, error)
	Cluster string
	Now     func() time.Time

	mu  sync.Mutex
	own *own
}

var _ controller.Identities = (*Verifier)(nil)

// own is what the verifier knows of itself.
type own struct {
	region, partition, account string
	endpoint                   *url.URL
}

// Verify returns the instance that has signed the proof for the certificate request in DER. An error that matches
// controller.ErrRefused stays; after another one the call may be repeated. A proof that does not have the one
// form that Prove gives it reaches no network.
func (v *Verifier) Verify(ctx context.Context, proof string, request []byte) (controller.Caller, error) {
	o, err := v.self(ctx)
	if err != nil {
		return controller.Caller{}, err
	}
	target, err := o.check(proof, v.Now())
	if err != nil {
		return controller.Caller{}, fmt.Errorf("%w: %w", controller.ErrRefused, err)
	}
	arn, err := ask(ctx, target, v.Cluster, request)
	if err != nil {
		return controller.Caller{}, err
	}
	caller, err := o.caller(arn)
	if err != nil {
		return controller.Caller{}, fmt.Errorf("%w: %w", controller.ErrRefused, err)
	}
	return caller, nil
}

// self asks STS for the verifier's own partition and account, once.
func (v *Verifier) self(ctx context.Context) (own, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.own != nil {
		return *v.own, nil
	}
	c, err := v.Load(ctx)
	if err != nil {
		return own{}, fmt.Errorf("looking for the masters' own identity: %w", err)
	}
	proof, err := Prove(ctx, c, v.Cluster, nil, v.Now())
	if err != nil {
		return own{}, fmt.Errorf("proving the masters' own identity: %w", err)
	}
	target, err := url.Parse(proof)
	if err != nil {
		return own{}, err
	}
	arn, err := ask(ctx, target, v.Cluster, nil)
	if err != nil {
		// Not ErrRefused, which would be the asking machine's fault.
		return own{}, fmt.Errorf("asking STS for the masters' own account: %v", err) //nolint:errorlint // see above
	}
	parts := strings.SplitN(arn, ":", 6)
	endpoint, err := endpointOf(ctx, c)
	if err != nil || len(parts) != 6 {
		return own{}, errors.Join(err, fmt.Errorf("STS calls the masters %q, which is no ARN", arn))
	}
	v.own = &own{region: c.Region, partition: parts[1], account: parts[4], endpoint: endpoint}
	return *v.own, nil
}

// parameters are those of a proof; every one of them is in it once, and no other is.
var parameters = []string{"Action", "Version", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token",
	"X-Amz-Signature", "X-Amz-SignedHeaders"}

// check returns the call that a proof stands for, made anew of the values that were checked: the proof itself is not
// sent, so that it does not matter how somebody else would read it.
func (o own) check(proof string, now time.Time) (*url.URL, error) {
	if proof == "" {
		return nil, errors.New("the request has no proof of identity")
	}
	if len(proof) > maxProof {
		return nil, fmt.Errorf("the proof of identity has %d bytes, over %d", len(proof), maxProof)
	}
	u, err := url.Parse(proof)
	if err != nil {
		return nil, errors.New("the proof of identity is not a URL")
	}
	if u.Scheme != o.endpoint.Scheme || u.Host != o.endpoint.Host || u.User != nil || u.Opaque != "" || u.EscapedPath() != "/" || u.Fragment != "" {
		return nil, fmt.Errorf("the proof of identity is for %q, and only %s is asked", u.Scheme+"://"+u.Host+u.EscapedPath(), o.endpoint)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("the parameters of the proof of identity cannot be read")
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) || len(values) != 1 || values[0] == "" {
			return nil, fmt.Errorf("the proof of identity has the parameter %q, which is not one of the call's, or is there twice or empty", name)
		}
	}
	if len(query) != len(parameters) {
		return nil, errors.New("the proof of identity lacks parameters of a call that temporary credentials have signed")
	}
	if err := o.checkValues(query, now); err != nil {
		return nil, err
	}
	target := *o.endpoint
	target.RawQuery = query.Encode()
	return &target, nil
}

func (o own) checkValues(query url.Values, now time.Time) error {
	for name, want := range map[string]string{"Action": action, "Version": version, "X-Amz-Algorithm": algorithm, "X-Amz-SignedHeaders": signedHeaders} {
		if got := query.Get(name); got != want {
			return fmt.Errorf("the proof of identity has %s=%q, want %q", name, got, want)
		}
	}
	// <key>/<day>/<region>/<service>/aws4_request
	if scope := strings.Split(query.Get("X-Amz-Credential"), "/"); len(scope) != 5 || scope[2] != o.region || scope[3] != service || scope[4] != "aws4_request" {
		return fmt.Errorf("the proof of identity is not signed for %s in %s", service, o.region)
	}
	seconds, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || seconds <= 0 || seconds > int(Life.Seconds()) {
		return fmt.Errorf("the proof of identity is to be good for %q s, and at most %.0f are allowed", query.Get("X-Amz-Expires"), Life.Seconds())
	}
	made, err := time.Parse(dateFormat, query.Get("X-Amz-Date"))
	if err != nil {
		return errors.New("the date of the proof of identity cannot be read")
	}
	if end := made.Add(time.Duration(seconds) * time.Second); now.After(end) {
		return fmt.Errorf("the proof of identity expired at %s, and it is %s", end.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if made.After(now.Add(skew)) {
		return fmt.Errorf("the proof of identity is of %s, which is to come: it is %s", made.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return nil
}

// client follows no redirect and uses no proxy.
var client = &http.Client{
	Timeout:       askTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport: &http.Transport{Proxy: nil, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: askTimeout,
		ResponseHeaderTimeout: askTimeout, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer},
}

// ask makes the call with the headers of this cluster and this certificate request, and returns the caller's ARN. If the
// proof was made for others, STS finds that the signature is not theirs.
func ask(ctx context.Context, target *url.URL, cluster string, request []byte) (string, error) {
	r, err := newRequest(ctx, target, cluster, request)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(r)
	if err != nil {
		// The URL, which client.Do puts into its error, has the session token.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return "", fmt.Errorf("asking %s who has signed: %w", target.Host, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("asking %s who has signed: %w", target.Host, err)
	}
	if answer.StatusCode != http.StatusOK {
		return "", refusal(target.Host, answer.StatusCode, body)
	}
	var found struct {
		XMLName xml.Name `xml:"GetCallerIdentityResponse"`
		Arn     string   `xml:"GetCallerIdentityResult>Arn"`
	}
	if err := xml.Unmarshal(body, &found); err != nil || found.Arn == "" {
		return "", fmt.Errorf("asking %s who has signed: the answer names nobody", target.Host)
	}
	return found.Arn, nil
}

// throttled are the codes of refusals that pass ("Common error types" of the API reference, and the SDK's list).
var throttled = []string{"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException", "RequestThrottled"}

// refusal is STS's error; it stays unless STS is at fault or busy.
func refusal(host string, status int, body []byte) error {
	var said struct {
		Error struct{ Code, Message string }
	}
	_ = xml.Unmarshal(body, &said) // a body of another form says nothing
	err := fmt.Errorf("%s answers %d %s %s", host, status, said.Error.Code, said.Error.Message)
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests || slices.Contains(throttled, said.Error.Code) {
		return err
	}
	return fmt.Errorf("%w: %w", controller.ErrRefused, err)
}

// instance is the form of an instance's id, which EC2 makes the name of the session of its role.
// It is compiled when it is first needed: only masters do.
var instance = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^i-[0-9a-f]{8,17}$`) })

// caller takes apart arn:<partition>:sts::<account>:assumed-role/<role>/<instance>.
func (o own) caller(arn string) (controller.Caller, error) {
	rest, ok := strings.CutPrefix(arn, "arn:"+o.partition+":sts::"+o.account+":assumed-role/")
	role, session, split := strings.Cut(rest, "/")
	if !ok || !split || role == "" || !instance().MatchString(session) {
		return controller.Caller{}, fmt.Errorf("%s is not an instance of account %s", arn, o.account)
	}
	return controller.Caller{Instance: session, Role: role}, nil
}
