package awsfake

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// signed is a request's AWS signature, version 4.
type signed struct {
	key, region, service string
	headers              []string
	date                 string
	request              *http.Request
	body                 [sha256.Size]byte
}

const dateFormat = "20060102T150405Z"

// readSignature takes the Authorization header apart; a request without a whole one has no service.
func readSignature(r *http.Request, body []byte) signed {
	s := signed{request: r, date: r.Header.Get("X-Amz-Date")}
	rest, _ := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	for field := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		switch name {
		case "Credential": // <key>/<date>/<region>/<service>/aws4_request
			if parts := strings.Split(value, "/"); len(parts) >= 5 {
				n := len(parts)
				s.key, s.region, s.service = strings.Join(parts[:n-4], "/"), parts[n-3], parts[n-2]
			}
		case "SignedHeaders":
			s.headers = strings.Split(value, ";")
		}
	}
	s.body = sha256.Sum256(body)
	return s
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
	url := *s.request.URL
	again.URL = &url
	if err := v4.NewSigner().SignHTTP(ctx, keys, again, s.payload(), s.service, s.region, at); err != nil {
		return false
	}
	want, got := again.Header.Get("Authorization"), s.request.Header.Get("Authorization")
	return subtle.ConstantTimeCompare([]byte(normalAuthorization(want)), []byte(normalAuthorization(got))) == 1
}

// unsignedPayload stands for the body in a signature that does not cover it.
const unsignedPayload = "UNSIGNED-PAYLOAD"

// payload returns the hash of the body as it was signed. Only PutSnapshotBlock may leave it out ("v4-unsigned-body" in
// the API's model): its checksum is signed instead.
func (s signed) payload() string {
	if s.service == "ebs" && s.request.Method == http.MethodPut && s.request.Header.Get("X-Amz-Content-Sha256") == unsignedPayload {
		return unsignedPayload
	}
	return hex.EncodeToString(s.body[:])
}

// normalAuthorization removes the optional spaces between the fields.
func normalAuthorization(s string) string { return strings.ReplaceAll(s, " ", "") }
