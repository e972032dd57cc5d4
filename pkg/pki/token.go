package pki

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// TokenLife is the lifetime of a bootstrap token. It is replaced at half of it, so that a token just read is valid for
	// at least twelve hours.
	TokenLife = 24 * time.Hour
	// GroupBootstrappers is the token's extra group, which has the right to request certificates.
	GroupBootstrappers = "system:bootstrappers:hardtack"
	// groupMachine begins the further group of a token for one machine. The node's name follows, with colons for its dots:
	// a token's groups can have no dots, and names no colons.
	groupMachine = GroupBootstrappers + ":node:"
	// MachineTokenPath is the file with a machine's own token, in the format of BootstrapToken.
	MachineTokenPath = "/etc/hardtack/bootstrap-token"
)

// nodePattern is the form of a node's name (RFC 1123's subdomain), compiled when it is needed: most runs of the agent need
// none.
var nodePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
})

// maxMachine is the length of the longest name in a token's group: Kubernetes takes "system:bootstrappers:" and 256
// characters.
const maxMachine = len("system:bootstrappers:") + 256 - len(groupMachine)

// MachineGroup returns the group of a token that is good for the node of that name only.
func MachineGroup(node string) (string, error) {
	if !nodePattern().MatchString(node) {
		return "", fmt.Errorf("%q is no name of a node: it has lower-case letters, digits, '-' and '.', such as node-a.example", node)
	}
	if len(node) > maxMachine {
		return "", fmt.Errorf("the name %q has %d characters, and the group of a bootstrap token takes %d", node, len(node), maxMachine)
	}
	return groupMachine + strings.ReplaceAll(node, ".", ":"), nil
}

// MachineGroups returns those of a requester's groups that bind it to a node.
func MachineGroups(groups []string) []string {
	var out []string
	for _, g := range groups {
		if strings.HasPrefix(g, groupMachine) {
			out = append(out, g)
		}
	}
	return out
}

// Token authenticates a machine's first certificate request: a bootstrap token of Kubernetes.
// As the object BootstrapToken it is JSON: {"token":"abcdef.0123456789abcdef","expires":"2026-01-02T03:04:05Z"}.
type Token struct {
	// ID names the Secret bootstrap-token-<ID>; only the field Secret is secret.
	ID, Secret string
	Expires    time.Time
}

// tokenPattern is Kubernetes' format.
var tokenPattern = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)

// tokenLetters are the characters of tokenPattern.
const tokenLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// tokenFile is the format in the store.
type tokenFile struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// NewToken returns a random token that is valid for TokenLife from now.
func NewToken(now time.Time) Token {
	return Token{ID: letters(6), Secret: letters(16), Expires: now.Add(TokenLife).UTC().Truncate(time.Second)}
}

// letters returns n random letters, uniformly distributed.
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

// String returns the token without its secret, for logs.
func (t Token) String() string { return t.ID + ".****************" }

// Bearer returns the token as it is sent in a request.
func (t Token) Bearer() string { return t.ID + "." + t.Secret }

// Expired reports whether the token has expired.
func (t Token) Expired(now time.Time) bool { return !now.Before(t.Expires) }

// Due reports whether the token must be replaced: at half its life, or if it expires later than any valid token can,
// which a wrong clock causes.
func (t Token) Due(now time.Time) bool {
	left := t.Expires.Sub(now)
	return left <= TokenLife/2 || left > TokenLife+Backdate
}

// Marshal encodes the object.
func (t Token) Marshal() ([]byte, error) {
	data, err := json.Marshal(tokenFile{t.Bearer(), t.Expires.UTC()})
	if err != nil {
		return nil, fmt.Errorf("encoding the bootstrap token: %w", err)
	}
	return append(data, '\n'), nil
}

// ParseToken parses the object. Its errors never contain the secret.
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
