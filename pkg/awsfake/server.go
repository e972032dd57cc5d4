package awsfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxBody is larger than any call of Hardtack: Route 53's 32,000 characters in XML, SQS's 1 MiB.
const maxBody = 4 << 20

// service carries out the calls of one API.
type service interface {
	// serve carries out one call with the account locked, and returns the answer for the protocol to encode. A call
	// that changed nothing returns an *Error; any other error is a bug and is answered with 500.
	serve(c *call) (any, error)
}

// protocol is the wire format of an API's calls and answers.
type protocol interface {
	// read sets the call's action and parameters.
	read(r *http.Request, body []byte, c *call) error
	write(w http.ResponseWriter, c *call, answer any)
	refuse(w http.ResponseWriter, c *call, e *Error)
}

// endpoint is one API: its protocol and the service behind it.
type endpoint struct {
	protocol protocol
	service  service
}

// call is one request as its protocol has read it.
type call struct {
	Service, Action string
	// Key is the access key that signed the request, Region the region it was signed for.
	Key, Region string
	Signature   signed
	// Caller made the call; nil in an account that does not authenticate.
	Caller *principal
	// ID is the request's ID, which every answer carries.
	ID  string
	Now time.Time
	// Form are the parameters of the Query and EC2 protocols.
	Form url.Values
	// Method, Path and Query are a REST call's.
	Method, Path string
	Query        url.Values
	// Body is the JSON or XML document.
	Body []byte
	// published is what STS has read of the issuer of a token.
	published published
}

// endpoints lists the APIs by the name that signatures carry.
func (a *Account) endpoints() map[string]endpoint {
	a.route53 = newRoute53(a)
	return map[string]endpoint{
		"route53":              {restXML{namespace: route53Namespace}, a.route53},
		"cloudformation":       {queryProtocol{namespace: "http://cloudformation.amazonaws.com/doc/2010-05-15/"}, a.regional.cloudformation},
		"autoscaling":          {queryProtocol{namespace: "http://autoscaling.amazonaws.com/doc/2011-01-01/"}, a.regional.autoscaling},
		"ebs":                  {restJSON{}, regionalService{a, func(p *place) service { return directAPI{p.images} }}},
		"ec2":                  {ec2Protocol{namespace: "http://ec2.amazonaws.com/doc/2016-11-15/"}, computing{a.regional.ec2}},
		"sqs":                  {jsonProtocol{version: "1.0", shapes: "com.amazonaws.sqs#"}, a.regional.sqs},
		"ssm":                  {jsonProtocol{version: "1.1"}, regionalService{a, func(p *place) service { return p.ssm }}},
		"s3":                   {s3Protocol{}, a.regional.s3},
		"iam":                  {queryProtocol{namespace: "https://iam.amazonaws.com/doc/2010-05-08/"}, iamService{a}},
		"elasticloadbalancing": {queryProtocol{namespace: "http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/"}, balancing{a}},
		"servicequotas":        {jsonProtocol{version: "1.1"}, quotaService{a}},
		"sts":                  {queryProtocol{namespace: "https://sts.amazonaws.com/doc/2011-06-15/"}, sts{a}},
	}
}

// Handler returns a handler that answers every API of the account. The service in a call's signature tells which API
// is called; the signature itself is checked once the account has roles or users (AddRole).
func (a *Account) Handler() http.Handler { return http.HandlerFunc(a.serveHTTP) }

func (a *Account) serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(w, r)
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the request: %v", err), http.StatusBadRequest)
		return
	}
	c := &call{Method: r.Method, Path: r.URL.Path, Query: r.URL.Query(), Body: body}
	c.Signature = readSignature(r, body)
	c.Key, c.Region, c.Service = c.Signature.key, c.Signature.region, c.Signature.service
	if isUnsigned(c, r, body) {
		c.Service, c.Region = "sts", HomeRegion
	}
	e, ok := a.services[c.Service]
	if !ok {
		http.Error(w, fmt.Sprintf("awsfake has no service %q (known by the signature's scope)", c.Service), http.StatusNotImplemented)
		return
	}
	c.ID = a.requestID()
	w.Header().Set("X-Amzn-Requestid", c.ID)
	if err := e.protocol.read(r, body, c); err != nil {
		e.protocol.refuse(w, c, refusal(err))
		return
	}
	counted := &countingWriter{ResponseWriter: w}
	w = counted
	defer func() { a.carried(c, int64(len(body)), counted.n) }()
	answer, err := a.answer(r.Context(), e.service, c)
	switch {
	case errors.Is(err, ErrReplyLost), r.Context().Err() != nil:
		// The server closes the connection without an answer.
		panic(http.ErrAbortHandler)
	case err != nil:
		e.protocol.refuse(w, c, refusal(err))
	default:
		e.protocol.write(w, c, answer)
	}
}

// readBody reads a request's body, into a buffer of its size where the client says it.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	var most int64 = maxBody
	if strings.Contains(r.Header.Get("Authorization"), "/s3/aws4_request") {
		most = maxUpload
	}
	limited := http.MaxBytesReader(w, r.Body, most)
	if r.ContentLength < 0 || r.ContentLength > most {
		return io.ReadAll(limited)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(limited, body)
	return body, err
}

func (a *Account) answer(ctx context.Context, s service, c *call) (answer any, err error) {
	if p, ok := s.(interface{ prepare(context.Context, *call) }); ok {
		p.prepare(ctx, c)
	}
	err = a.do(ctx, c.Service, c.Action, func(now time.Time) (err error) {
		c.Now = now
		if err := a.authorize(ctx, s, c); err != nil {
			return err
		}
		answer, err = s.serve(c)
		return err
	})
	return answer, err
}

func (a *Account) requestID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tally.serial++
	return fmt.Sprintf("00000000-0000-4000-8000-%012x", a.tally.serial)
}

// refusal returns err as an API's answer. An err that is no *Error is a bug and becomes an InternalFailure.
func refusal(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Status: http.StatusInternalServerError, Code: "InternalFailure", Message: err.Error()}
}
