package zone

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/miekg/dns"
)

// Key signs requests to a server and verifies its answers (TSIG, RFC 8945). The zero Key does
// neither.
type Key struct {
	// Name is fully qualified and in lower case, Algorithm as DNS spells it: "hmac-sha256.".
	Name, Algorithm string
	// Secret is in base64.
	Secret string
}

// The algorithms that servers of today take; MD5 is left out on purpose.
var algorithms = map[string]string{
	"hmac-sha1": dns.HmacSHA1, "hmac-sha224": dns.HmacSHA224, "hmac-sha256": dns.HmacSHA256,
	"hmac-sha384": dns.HmacSHA384, "hmac-sha512": dns.HmacSHA512,
}

var (
	// keyComment also matches quoted text, which is kept: base64 may contain two slashes.
	keyComment = regexp.MustCompile(`"[^"]*"|(?s:/\*.*?\*/)|//[^\n]*|#[^\n]*`)
	// keyClause is what tsig-keygen writes, with the statements of its body in any order.
	keyClause    = regexp.MustCompile(`(?s)^\s*key\s+"?([^\s"{;]+)"?\s*\{(.*)\}\s*;?\s*$`)
	keyStatement = regexp.MustCompile(`^\s*(algorithm|secret)\s+(?:"([^"]*)"|([^\s"]+))\s*$`)
)

const keyHint = "write one with: tsig-keygen hardtack > FILE"

// ReadKey reads a file with one key clause, as BIND's tsig-keygen writes it and its configuration
// includes it. Errors never contain the secret.
func ReadKey(file string) (Key, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Key{}, fmt.Errorf("reading the TSIG key: %w", err)
	}
	k, err := parseKey(string(data))
	if err != nil {
		return Key{}, fmt.Errorf("reading the TSIG key in %s: %w (%s)", file, err, keyHint)
	}
	return k, nil
}

func parseKey(text string) (Key, error) {
	clause := keyClause.FindStringSubmatch(keyComment.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasPrefix(match, `"`) {
			return match
		}
		return " "
	}))
	if clause == nil {
		return Key{}, errors.New(`it is not one clause of the form key "name" { algorithm …; secret "…"; };`)
	}
	k := Key{Name: dns.CanonicalName(clause[1])}
	for _, statement := range strings.Split(clause[2], ";") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		m := keyStatement.FindStringSubmatch(statement)
		if m == nil {
			return Key{}, errors.New("it has a statement that is neither an algorithm nor a secret")
		}
		value := m[2] + m[3]
		if m[1] == "secret" {
			k.Secret = value
			continue
		}
		known, ok := algorithms[strings.ToLower(strings.TrimSuffix(value, "."))]
		if !ok {
			return Key{}, fmt.Errorf("algorithm %q is not one of hmac-sha1, -sha224, -sha256, -sha384, -sha512", value)
		}
		k.Algorithm = known
	}
	if raw, err := base64.StdEncoding.DecodeString(k.Secret); err != nil || len(raw) == 0 {
		return Key{}, errors.New("its secret is not base64")
	}
	if k.Algorithm == "" {
		return Key{}, errors.New("it names no algorithm")
	}
	return k, nil
}
