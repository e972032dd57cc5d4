package issuer_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

const url = "https://tokens.s3.us-west-2.amazonaws.com/demo"

func newKeys(t *testing.T, n int) (list []*ecdsa.PrivateKey, public []*ecdsa.PublicKey) {
	t.Helper()
	for range n {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		assert.NilError(t, err)
		list, public = append(list, key), append(public, &key.PublicKey)
	}
	return list, public
}

// read is what somebody finds who reads the documents.
func read(t *testing.T, documents []issuer.Document) issuer.Published {
	t.Helper()
	var p issuer.Published
	for _, d := range documents {
		if d.Path == issuer.KeysPath {
			names, err := issuer.ParseKeys(d.Content)
			assert.NilError(t, err)
			p.Keys = names
			continue
		}
		c, err := issuer.ParseConfiguration(d.Content)
		assert.NilError(t, err)
		p.Issuer, p.KeysURL = c.Issuer, c.KeysURL
	}
	return p
}

// TestDocuments: a verifier finds the key of a token by its name in the published set, and no other key verifies it. No private part
// of a key is in any document.
func TestDocuments(t *testing.T) {
	private, public := newKeys(t, 3)
	documents, err := issuer.Documents(url, public[:2])
	assert.NilError(t, err)
	assert.Equal(t, documents[0].Path, issuer.KeysPath, "keys are written first")
	var set jose.JSONWebKeySet
	assert.NilError(t, json.Unmarshal(documents[0].Content, &set))
	for i, key := range private {
		id, err := issuer.KeyID(&key.PublicKey)
		assert.NilError(t, err)
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
		assert.NilError(t, err)
		text, err := jwt.Signed(signer).Claims(jwt.Claims{Issuer: url}).Serialize()
		assert.NilError(t, err)
		token, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
		assert.NilError(t, err)
		var claims jwt.Claims
		if err := token.Claims(set, &claims); (err == nil) != (i < 2) {
			t.Errorf("a token of key %d: %v", i, err)
		}
	}
	for _, d := range documents {
		assert.Assert(t, !strings.Contains(string(d.Content), `"d":`), "%s", d.Content)
	}
	_, err = issuer.Documents(url, nil)
	assert.ErrorContains(t, err, "there is no key")
}

// TestCheck: each way in which what is published can be wrong is said.
func TestCheck(t *testing.T) {
	_, public := newKeys(t, 3)
	documents, err := issuer.Documents(url, public[:2])
	assert.NilError(t, err)
	good := read(t, documents)
	assert.Equal(t, len(good.Check(url, public[:2])), 0)
	for _, tt := range []struct {
		name, want string
		problems   []string
	}{
		{"a new key", "key 2 of 2, ", good.Check(url, public[1:])},
		{"an old key", "is published, and the cluster's no longer", good.Check(url, public[:1])},
		{"another issuer", `of the issuer "` + url + `"`, good.Check(url+"/", public[:2])},
		{"no TLS", "begins with https", issuer.Published{Issuer: url, KeysURL: "http://x", Keys: good.Keys}.Check(url, public[:2])},
	} {
		assert.Assert(t, strings.Contains(strings.Join(tt.problems, "\n"), tt.want), "%s: %q", tt.name, tt.problems)
	}
	for _, text := range []string{"", "{", `{"keys":[{"kty":"oct","k":"AA","kid":"x"}]}`} {
		if _, err := issuer.ParseKeys([]byte(text)); err == nil {
			t.Errorf("keys %q are read", text)
		}
	}
}
