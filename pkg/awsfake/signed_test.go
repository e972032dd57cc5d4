package awsfake_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// signedBy is a request for the caller's identity that was signed at another time.
func signedBy(t *testing.T, c awsfake.Credentials, url string, at time.Time) *http.Request {
	t.Helper()
	return signedForm(t, c, url, "sts", "Action=GetCallerIdentity&Version=2011-06-15", at)
}

// signedForm is a request of the Query protocol.
func signedForm(t *testing.T, c awsfake.Credentials, url, service, form string, at time.Time) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/", strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256([]byte(form))
	keys := aws.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, SessionToken: c.Token}
	if err := v4.NewSigner().SignHTTP(t.Context(), keys, r, hex.EncodeToString(sum[:]), service, "us-west-2", at); err != nil {
		t.Fatal(err)
	}
	return r
}
