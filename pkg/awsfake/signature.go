package awsfake

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// signed is a request's AWS signature, version 4: in its header Authorization, or in the parameters of a presigned URL.
type signed struct {
	key, region, service string
	headers              []string
	date, token          string
	presigned            bool
	request              *http.Request
	body                 [sha256.Size]byte
}

const dateFormat = "20060102T150405Z"

// readSignature takes the signature apart; a request without a whole one has no service.
func readSignature(r *http.Request, body []byte) signed {
	s := signed{request: r, date: r.Header.Get("X-Amz-Date"), token: r.Header.Get("X-Amz-Security-Token"), body: sha256.Sum256(body)}
	if rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 "); ok {
		for field := range strings.SplitSeq(rest, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			switch name {
			case "Credential":
				s.scope(value)
			case "SignedHeaders":
				s.headers = strings.Split(value, ";")
			}
		}
		return s
	}
	if q := r.URL.Query(); q.Get("X-Amz-Algorithm") == "AWS4-HMAC-SHA256" {
		s.presigned, s.date, s.token = true, q.Get("X-Amz-Date"), q.Get("X-Amz-Security-Token")
		s.headers = strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
		s.scope(q.Get("X-Amz-Credential"))
	}
	return s
}

// scope reads <key>/<date>/<region>/<service>/aws4_request.
func (s *signed) scope(value string) {
	if parts := strings.Split(value, "/"); len(parts) >= 5 {
		n := len(parts)
		s.key, s.region, s.service = strings.Join(parts[:n-4], "/"), parts[n-3], parts[n-2]
	}
}

// The bounds of X-Amz-Expires, in seconds ("Authenticating Requests: Using Query Parameters" of Signature Version 4).
const maxExpires = 604800

// life is how long a signature is good. A presigned URL says it, but STS ignores that, and takes the URL for
// fifteen minutes (github.com/aws/aws-sdk-go/issues/2167): who wants less has to hold it itself. The stand-in is
// nevertheless strict about the parameter's form. ok is false if that is wrong.
func (s signed) life() (time.Duration, bool) {
	if !s.presigned {
		return skew, true
	}
	n, err := strconv.Atoi(s.request.URL.Query().Get("X-Amz-Expires"))
	return presignedLife, err == nil && n > 0 && n <= maxExpires
}

// valid recomputes the signature with the SDK's own signer, over the headers that the caller says it signed: the
// host and every header that begins with X-Amz- must be among them.
func (s signed) valid(ctx context.Context, c Credentials) bool {
	at, err := time.Parse(dateFormat, s.date)
	if err != nil || !slices.Contains(s.headers, "host") {
		return false
	}
	again := &http.Request{Method: s.request.Method, URL: s.request.URL, Host: s.request.Host, Header: http.Header{}}
	for name, values := range s.request.Header {
		switch {
		case slices.Contains(s.headers, strings.ToLower(name)):
			again.Header[name] = values
		case strings.HasPrefix(name, "X-Amz-"):
			return false
		}
	}
	if slices.Contains(s.headers, "content-length") {
		again.ContentLength = s.request.ContentLength
	}
	keys := aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, SessionToken: c.Token}
	target := *s.request.URL
	again.URL = &target
	if s.presigned {
		return s.validURL(ctx, keys, again, at)
	}
	// S3 takes the path as it was sent ("Create a canonical request": "You do not normalize URI paths for requests to Amazon S3").
	plain := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = s.service == "s3" }
	if err := v4.NewSigner().SignHTTP(ctx, keys, again, s.payload(), s.service, s.region, at, plain); err != nil {
		return false
	}
	want, got := again.Header.Get("Authorization"), s.request.Header.Get("Authorization")
	return subtle.ConstantTimeCompare([]byte(normalAuthorization(want)), []byte(normalAuthorization(got))) == 1
}

// validURL recomputes the signature of a presigned URL: it covers every parameter but itself, and every header that it
// names must have been sent.
func (s signed) validURL(ctx context.Context, keys aws.Credentials, again *http.Request, at time.Time) bool {
	for _, name := range s.headers {
		if name != "host" && len(again.Header.Values(name)) == 0 {
			return false
		}
	}
	q := again.URL.Query()
	got := q.Get("X-Amz-Signature")
	for _, name := range []string{"X-Amz-Signature", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Security-Token", "X-Amz-SignedHeaders"} {
		q.Del(name) // the signer writes them again
	}
	again.URL.RawQuery = q.Encode()
	again.URL.Scheme, again.URL.Host = "https", again.Host
	text, _, err := v4.NewSigner().PresignHTTP(ctx, keys, again, s.payload(), s.service, s.region, at)
	if err != nil {
		return false
	}
	want, err := url.Parse(text)
	return err == nil && subtle.ConstantTimeCompare([]byte(want.Query().Get("X-Amz-Signature")), []byte(got)) == 1
}

// unsignedPayload stands for the body in a signature that does not cover it.
const unsignedPayload = "UNSIGNED-PAYLOAD"

// payload returns the hash of the body as it was signed. Only PutSnapshotBlock may leave it out ("v4-unsigned-body" in
// the API's model): its checksum is signed instead.
func (s signed) payload() string {
	if s.service == "ebs" && s.request.Method == http.MethodPut && s.request.Header.Get("X-Amz-Content-Sha256") == unsignedPayload {
		return unsignedPayload
	}
	if s.service == "s3" {
		return s.request.Header.Get("X-Amz-Content-Sha256") // S3 compares it with the body by itself
	}
	return hex.EncodeToString(s.body[:])
}

// normalAuthorization removes the optional spaces between the fields.
func normalAuthorization(s string) string { return strings.ReplaceAll(s, " ", "") }
