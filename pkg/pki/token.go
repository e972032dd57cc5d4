package pki

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"
)

const (
	// TokenLife is how long a bootstrap token is good for, and it is replaced at half of it: whoever reads one has
	// at least twelve hours to use it, and who finds an old one has nothing.
	TokenLife = 24 * time.Hour
	// GroupBootstrappers is the extra group of the token, to which the right to ask for a certificate is bound.
	GroupBootstrappers = "system:bootstrappers:hardtack"
)

// Token is what a machine shows when it first asks for a certificate: a bootstrap token of Kubernetes.
// As BootstrapToken it is one line of JSON: {"token":"abcdef.0123456789abcdef","expires":"2026-01-02T03:04:05Z"}.
type Token struct {
	// ID names the Secret bootstrap-token-<ID>; only Secret is a secret.
	ID, Secret string
	Expires    time.Time
}

// tokenPattern is the format that Kubernetes asks for.
var tokenPattern = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)

// tokenLetters are those of tokenPattern.
const tokenLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// tokenFile is the format in the store.
type tokenFile struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// NewToken makes a token that is good from now on for TokenLife.
func NewToken(now time.Time) Token {
	return Token{ID: letters(6), Secret: letters(16), Expires: now.Add(TokenLife).UTC().Truncate(time.Second)}
}

// letters draws n letters, each as likely as the other.
func letters(n int) string {
	const fair = 256 / len(tokenLetters) * len(tokenLetters)
	out := make([]byte, 0, n)
	for one := make([]byte, 1); len(out) < n; {
		_, _ = rand.Read(one) // never fails: see its documentation
		if int(one[0]) < fair {
			out = append(out, tokenLetters[int(one[0])%len(tokenLetters)])
		}
	}
	return string(out)
}

// String is the token without its secret, fit for logs.
func (t Token) String() string { return t.ID + ".****************" }

// Bearer is what goes into a request.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// Expired reports whether the token is no longer good.
func (t Token) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// Due reports whether the token is to be replaced: at half its life, and when its end is further away than any
// token's can be, which is what a clock that was wrong leaves behind.
func (t Token) Due(now time.Time) bool {
	left := t.Expires.Sub(now)
	return left <= TokenLife/2 || left > TokenLife+Backdate
}

// Marshal writes the object.
func (t Token) Marshal() ([]byte, error) {
	data, err := json.Marshal(tokenFile{t.Bearer(), t.Expires.UTC()})
	if err != nil {
		return nil, fmt.Errorf("encoding the bootstrap token: %w", err)
	}
	return append(data, '\n'), nil
}

// ParseToken reads the object. Its errors never show what was read.
func ParseToken(data []byte) (Token, error) {
	var file tokenFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return Token{}, errors.New(`reading the bootstrap token: it is not {"token":…,"expires":…}`)
	}
	parts := tokenPattern.FindStringSubmatch(file.Token)
	if parts == nil {
		return Token{}, errors.New("reading the bootstrap token: it does not have the form abcdef.0123456789abcdef")
	}
	if file.Expires.IsZero() {
		return Token{}, errors.New("reading the bootstrap token: it does not say when it expires")
	}
	return Token{ID: parts[1], Secret: parts[2], Expires: file.Expires}, nil
}
