// Package issuer computes what a cluster publishes as the issuer of its pods' tokens: the document of OpenID Connect Discovery, and the
// public keys.
//
// Its rule: the documents are a function of the issuer's URL and of the keys, and are byte for byte what kube-apiserver serves, so
// that who verifies a token gets the same answer from both.
package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// The paths of the documents below an issuer's URL: the first is OpenID Connect Discovery's, the second Kubernetes's.
const (
	ConfigurationPath = ".well-known/openid-configuration"
	KeysPath          = "openid/v1/jwks"
)

// The types of the documents' content, as kube-apiserver has them.
const (
	configurationType = "application/json"
	keysType          = "application/jwk-set+json"
)

// MaxKeys is how many keys on elliptic curves AWS reads of an issuer.
const MaxKeys = 100

// KeysURL is where an issuer's keys are.
func KeysURL(issuer string) string { return issuer + "/" + KeysPath }

// ConfigurationURL is where an issuer says where its keys are.
func ConfigurationURL(issuer string) string { return issuer + "/" + ConfigurationPath }

// Document is one published document.
type Document struct {
	// Path is below the issuer's URL, without a slash at its beginning.
	Path string
	// Type is the type of its content.
	Type    string
	Content []byte
}

// configuration is the discovery document, with the fields of kube-apiserver's (pkg/serviceaccount/openidmetadata.go).
type configuration struct {
	Issuer     string   `json:"issuer"`
	Keys       string   `json:"jwks_uri"`
	Responses  []string `json:"response_types_supported"`
	Subjects   []string `json:"subject_types_supported"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
}

// Documents returns what an issuer with these public keys publishes, in the order in which it is to be written: the keys before what
// points at them. There must be a key, and all must be on the curve P-256.
func Documents(url string, keys []*ecdsa.PublicKey) ([]Document, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("the documents of %s: there is no key", url)
	}
	var set jose.JSONWebKeySet
	for _, key := range keys {
		id, err := KeyID(key)
		if err != nil {
			return nil, fmt.Errorf("the documents of %s: %w", url, err)
		}
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key, KeyID: id, Algorithm: string(jose.ES256), Use: "sig"})
	}
	published, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("the keys of %s: %w", url, err)
	}
	described, err := json.Marshal(configuration{
		Issuer: url, Keys: KeysURL(url), Responses: []string{"id_token"}, Subjects: []string{"public"}, Algorithms: []string{string(jose.ES256)},
	})
	if err != nil {
		return nil, fmt.Errorf("the configuration of %s: %w", url, err)
	}
	return []Document{{KeysPath, keysType, published}, {ConfigurationPath, configurationType, described}}, nil
}

// KeyID is a key's name in tokens and in the published set: the SHA-256 of its encoding, as kube-apiserver computes it
// (pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func KeyID(key *ecdsa.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a public key: %w", err)
	}
	sum := crypto.SHA256.New()
	_, _ = sum.Write(der) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
}

// Published is what was read of an issuer's documents.
type Published struct {
	Issuer, KeysURL string
	// Keys are the names of the keys.
	Keys []string
}

// ParseConfiguration reads a discovery document, as far as who verifies tokens depends on it.
func ParseConfiguration(data []byte) (Published, error) {
	var c configuration
	if err := json.Unmarshal(data, &c); err != nil {
		return Published{}, fmt.Errorf("reading the configuration: %w", err)
	}
	return Published{Issuer: c.Issuer, KeysURL: c.Keys}, nil
}

// ParseKeys returns the names of the keys of a published set.
func ParseKeys(data []byte) ([]string, error) {
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("reading the keys: %w", err)
	}
	var names []string
	for _, key := range set.Keys {
		if !key.Valid() || !key.IsPublic() {
			return nil, fmt.Errorf("reading the keys: %q is not a public key", key.KeyID)
		}
		names = append(names, key.KeyID)
	}
	return names, nil
}

// Check returns what keeps tokens of the issuer that are signed with these keys from being verified with what was published, and which
// published keys are none of these; nil is nothing.
func (p Published) Check(url string, keys []*ecdsa.PublicKey) (problems []string) {
	if p.Issuer != url {
		problems = append(problems, fmt.Sprintf("the configuration is of the issuer %q", p.Issuer))
	}
	if !strings.HasPrefix(p.KeysURL, "https://") {
		problems = append(problems, fmt.Sprintf("the configuration has the keys at %q, which is not a URL that begins with https", p.KeysURL))
	}
	have := map[string]bool{}
	for _, name := range p.Keys {
		have[name] = true
	}
	for i, key := range keys {
		id, err := KeyID(key)
		switch {
		case err != nil:
			problems = append(problems, err.Error())
		case !have[id]:
			problems = append(problems, fmt.Sprintf("key %d of %d, %s, is not published: who has the published keys refuses what it signs", i+1, len(keys), id))
		}
		delete(have, id)
	}
	for _, name := range p.Keys {
		if have[name] {
			problems = append(problems, fmt.Sprintf("%s is published, and the cluster's no longer: who has the published keys takes what it signs", name))
		}
	}
	return problems
}

// Record is the object pki.PublicIssuer of a cluster's store.
type Record struct {
	// Issuer is the URL of the issuer whose keys are published.
	Issuer string `json:"issuer"`
	// To is where they are written, as publish.Open takes it; empty if that is not Hardtack's to do.
	To string `json:"to,omitempty"`
}

// Marshal encodes the record.
func (r Record) Marshal() ([]byte, error) {
	data, err := json.Marshal(r)
	return append(data, '\n'), err
}

// ParseRecord reads what Marshal has written.
func ParseRecord(data []byte) (r Record, err error) {
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("reading the record of the issuer: %w", err)
	}
	if !strings.HasPrefix(r.Issuer, "https://") {
		return Record{}, fmt.Errorf("reading the record of the issuer: %q is not a URL that begins with https", r.Issuer)
	}
	return r, nil
}
