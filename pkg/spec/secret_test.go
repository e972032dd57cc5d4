package spec

import "testing"

// TestSecret looks for secrets where operators put them, and finds none in what names one without holding it. A "?" is what
// is only warned of.
func TestSecret(t *testing.T) {
	const jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJlLW9mLWl0"
	for text, want := range map[string]string{
		"users:\n- name: me\n  user:\n    token: abc123def456\n":             "a token?",
		"    token: \"0123456789\"\n":                                        "a token?",
		"- {name: me, user: {token: " + jwt + "}}\n":                         "a token",
		"Authorization: Bearer " + jwt + "\n":                                "a token",
		"kubeadm join --token abcdef.0123456789abcdef 10.0.0.1:6443\n":       "a token?",
		"export GITHUB_TOKEN=ghp_0123456789abcdefghijklmnopqrstuvwxyz\n":     "a token",
		"VAULT_TOKEN=hvs.CAESIJ0123\n":                                       "a token?",
		"bearer_token: s3cr3t-value\n":                                       "a token?",
		"DB_PASSWORD=correct-horse\n":                                        "a password?",
		"password = \"hunter2hunter2\"\n":                                    "a password?",
		"{\n  \"password\": \"hunter22\",\n  \"user\": \"a\"\n}\n":           "a password?",
		`{"auths": {"registry.example": {"auth": "dXNlcjpodW50ZXIy"}}}`:      "a password",
		"[plugins]\n  server = \"https://user:hunter2@registry.example/\"\n": "a password",
		"client_secret: 0123456789abcdef\n":                                  "a secret?",
		"Environment=\"SMTP_PASSWORD=correct-horse\"\n":                      "a password?",
		"API_KEY=0123456789abcdef\n":                                         "a secret?",
		"- AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ\n":         "a private key",
		"":                                                           "",
		"tokenFile: /var/run/secrets/token\n":                        "",
		"token: /var/run/secrets/token\n":                            "",
		"token: \"\"\npassword:\n":                                   "",
		"token: ${TOKEN}\npassword: $PASSWORD\n":                     "",
		"password: <from the store>\n":                               "",
		"Environment=TOKEN_FILE=/run/token\n":                        "",
		"--service-account-key-file=/etc/sa.pub\n":                   "",
		"tokenTTL: 24h0m0s\nautomountServiceAccountToken: false\n":   "",
		"# the password is in the store, and the token: see there\n": "",
		"image: registry.example:5000/app@sha256:0123456789abcdef\n": "",
		"apiServer: https://masters.demo.k8s:6443\n":                 "",
		"password-policy: at-least-12-characters\n":                  "",
		"tokens: 128 per request\n":                                  "",
		"image: v1.36.3\nfile: abcdef.conf\n":                        "",
		"kind: Secret\nmetadata: {name: token}\n":                    "",
	} {
		got := secret([]byte(text))
		if guess := holds(likely, []byte(text)); got == "" && guess != "" {
			got = guess + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
