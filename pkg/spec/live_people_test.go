package spec_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"k8s.io/client-go/rest"
)

// documentedOIDC is the document of cmd/hardtack/README.md that has people log in by OpenID Connect.
func documentedOIDC(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/hardtack/README.md")
	assert.NilError(t, err)
	for block := range strings.SplitSeq(string(text), "```yaml\n") {
		if block, _, _ = strings.Cut(block, "```"); strings.Contains(block, "jwt:") {
			return block
		}
	}
	t.Fatal("the README has no document with jwt:")
	return ""
}

// people log in by the README's document.
func (c *live) people(t *testing.T, idp *issuer) {
	t.Helper()
	as := func(token string) *rest.Config {
		return &rest.Config{Host: "https://127.0.0.1:" + c.api, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}}
	}
	claims := func(change string, value any) map[string]any {
		all := map[string]any{"iss": idp.server.URL, "aud": "hardtack", "sub": "1", "email": "ada@example.org", "email_verified": true, "groups": []string{"platform"},
			"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
		all[change] = value
		return all
	}
	const who = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	c.await(t, "the API server to know the issuer", func() bool {
		code, _ := c.try(t.Context(), as(idp.token(t, claims("sub", "1"))), http.MethodPost, who, "", "{}")
		return code == http.StatusCreated
	})
	c.want(t, as(idp.token(t, claims("sub", "1"))), http.MethodPost, who, "{}", http.StatusCreated, `"username":"oidc:ada@example.org"`)
	c.want(t, as(idp.token(t, claims("sub", "1"))), http.MethodPost, who, "{}", http.StatusCreated, `"oidc:platform"`)
	for name, bad := range map[string]map[string]any{
		"another's audience": claims("aud", "another"), "an expired token": claims("exp", time.Now().Add(-time.Hour).Unix()), "an address that nobody has checked": claims("email_verified", false),
		"a group of the system": claims("groups", []string{"system:masters"}),
	} {
		code, text := c.try(t.Context(), as(idp.token(t, bad)), http.MethodGet, "/api/v1/secrets", "", "")
		assert.Assert(t, code == http.StatusUnauthorized || code == http.StatusForbidden, "%s: %d %s", name, code, text)
	}
}

// issuer is an identity provider.
type issuer struct {
	server *httptest.Server
	key    *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	assert.NilError(t, err)
	i := &issuer{key: key}
	point, err := key.PublicKey.Bytes() // 4, x, y
	assert.NilError(t, err)
	text := base64.RawURLEncoding.EncodeToString
	i.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string]any{"issuer": i.server.URL, "jwks_uri": i.server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}}
		if r.URL.Path == "/keys" {
			answer = map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "k", "x": text(point[1:33]), "y": text(point[33:])}}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer) // the API server asks again
	}))
	t.Cleanup(i.server.Close)
	return i
}

// ca is the certificate that the issuer's server shows, which is its own authority.
func (i *issuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw}))
}

func (i *issuer) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	assert.NilError(t, err)
	text := base64.RawURLEncoding.EncodeToString
	signed := text([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + text(payload)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, digest[:])
	assert.NilError(t, err)
	return signed + "." + text(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// indent puts a text below a key of YAML.
func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+by)
}
