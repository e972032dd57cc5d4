package awsfake_test

import (
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// issued makes a user's and a role's credentials in a new account.
func issued(t *testing.T, o awsfake.Options) (user, session awsfake.Credentials) {
	t.Helper()
	a := awsfake.New(o)
	a.AddRole("masters")
	user = a.AddUser("owner")
	session, err := a.Issue("masters", "i-0123456789abcdef0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	session.Expires = time.Time{}
	return user, session
}

// TestSecrets are random, so that nobody can compute them; with a test's own source they are the same again.
func TestSecrets(t *testing.T) {
	user, session := issued(t, awsfake.Options{})
	other, again := issued(t, awsfake.Options{})
	if user.AccessKey != other.AccessKey || user.Secret == other.Secret || session.Secret == again.Secret || session.Token == again.Token {
		t.Errorf("two accounts issue\n%+v %+v\n%+v %+v", user, session, other, again)
	}
	fixed := func() awsfake.Options { return awsfake.Options{Random: rand.NewChaCha8([32]byte{1})} }
	user, session = issued(t, fixed())
	if other, again = issued(t, fixed()); user != other || session != again {
		t.Errorf("with the same source:\n%+v %+v\n%+v %+v", user, session, other, again)
	}
}

// TestClosed has no open moment before the first user.
func TestClosed(t *testing.T) {
	a := awsfake.New(awsfake.Options{Closed: true})
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	a.SetPolicy("AKIAIOSFODNN7EXAMPLE", awsfake.Administrator())
	for service, err := range calls(t.Context(), config(server.URL, awsfake.Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", Secret: "any"}, nil)) {
		if err == nil {
			t.Errorf("%s answers a key of nobody", service)
		}
	}
	for service, err := range calls(t.Context(), config(server.URL, a.AddUser("owner", awsfake.Administrator()), nil)) {
		if code := codeOf(err); code != "ok" && code != "ParameterNotFound" {
			t.Errorf("%s refuses the first user: %v", service, err)
		}
	}
}
