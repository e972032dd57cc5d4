package zone_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

func TestReadKey(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"as tsig-keygen writes it", "key \"hardtack\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n", ""},
		{"on one line, with comments", "/* a\nb */ key Hardtack. { # c\n secret c2VjcmV0; algorithm HMAC-SHA512; }; // d\n", ""},
		{"a slash in the secret", "key k { algorithm hmac-sha256; secret \"AA//AA==\"; };", ""},
		{"no clause", "secret", "not one clause"},
		{"two clauses", "key a { algorithm hmac-sha256; secret \"c2VjcmV0\"; };\nkey b { algorithm hmac-sha256; secret \"c2VjcmV0\"; };", "neither an algorithm"},
		{"md5", "key a { algorithm hmac-md5; secret \"c2VjcmV0\"; };", "hmac-md5"},
		{"no algorithm", "key a { secret \"c2VjcmV0\"; };", "no algorithm"},
		{"no base64", "key a { algorithm hmac-sha256; secret \"TOPSECRET!\"; };", "not base64"},
		{"no secret", "key a { algorithm hmac-sha256; };", "not base64"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "a.key")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			k, err := zone.ReadKey(file)
			if tc.want == "" {
				if err != nil || k.Name == "" || !strings.HasPrefix(k.Algorithm, "hmac-sha") || k.Secret == "" {
					t.Errorf("%+v, %v", k, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "tsig-keygen") || strings.Contains(err.Error(), "TOPSECRET") {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := zone.ReadKey(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
