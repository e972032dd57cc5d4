package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store/storetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const root = "/hardtack/demo"

// connect returns a store for the holder of credentials.
func connect(url string, c awsfake.Credentials) *store.SSM {
	return store.NewSSM(root, func(context.Context) (aws.Config, error) {
		return aws.Config{
			Region: "us-west-2", BaseEndpoint: aws.String(url),
			Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token),
			Retryer:     func() aws.Retryer { return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts = 2 }) },
		}, nil
	})
}

// closed is an address at which nothing listens.
func closed(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

// freely lifts the limits of throughput: the suite is not about them.
var freely = map[string]float64{"ssm": 0, "ssm:PutParameter": 0}

func TestSSM(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		t.Helper()
		account := awsfake.New(awsfake.Options{Rates: freely})
		operator, nobody := account.AddUser("operator", awsfake.Administrator()), account.AddUser("nobody")
		server := httptest.NewServer(account.Handler())
		t.Cleanup(server.Close)
		return storetest.Subject{Store: connect(server.URL, operator), Again: connect(server.URL, operator),
			Stranger: connect(server.URL, nobody), Gone: connect(closed(t), operator)}
	})
}

// TestSSMAgainstMoto runs the suite on another stand-in. moto lets everybody in.
func TestSSMAgainstMoto(t *testing.T) {
	url := moto.Start(t)
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		t.Helper()
		emptyMoto(t, url)
		key := awsfake.Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"}
		return storetest.Subject{Store: connect(url, key), Again: connect(url, key), Gone: connect(closed(t), key)}
	})
}

// emptyMoto takes away what the last scenario has left.
func emptyMoto(t *testing.T, url string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/moto-api/reset", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Fatalf("emptying moto: %s", answer.Status)
	}
}

// TestRolesReadOnlyTheirOwn gives each role's instances the policy of the role, and lets each try every object.
func TestRolesReadOnlyTheirOwn(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	all := connect(server.URL, operator)
	objects := []string{pki.PublicKubernetes, pki.BootstrapToken, pki.EncryptionKey,
		pki.ServiceAccount + pki.Key, pki.ServiceAccount + pki.Pub}
	for _, name := range pki.Authorities() {
		objects = append(objects, name+pki.Crt, name+pki.Key)
	}
	for _, object := range objects {
		if err := all.Create(t.Context(), object, []byte("content of "+object)); err != nil {
			t.Fatal(err)
		}
	}
	// May read, may write: written out, so that a change of the table is seen here.
	masters := map[string]bool{
		"masters/kubernetes-ca.crt": true, "masters/kubernetes-ca.key": true, "masters/front-proxy-ca.crt": true, "masters/front-proxy-ca.key": true, "masters/kubelet-serving-ca.crt": true, "masters/kubelet-serving-ca.key": true,
		"masters/service-account.key": true, "masters/service-account.pub": true, "masters/encryption.key": true,
		"etcd/client-ca.crt": true, "etcd/client-ca.key": true, "minions/bootstrap-token": true, "public/kubernetes-ca.crt": true,
	}
	etcd := map[string]bool{"etcd/client-ca.crt": true, "etcd/client-ca.key": true, "etcd/peer-ca.crt": true, "etcd/peer-ca.key": true, "public/kubernetes-ca.crt": true}
	minions := map[string]bool{"minions/bootstrap-token": true, "public/kubernetes-ca.crt": true}
	for r, reads := range map[role.Role]map[string]bool{role.Masters: masters, role.Etcd: etcd, role.Minions: minions} {
		t.Run(string(r), func(t *testing.T) {
			s := connect(server.URL, instance(t, account, r))
			for _, object := range objects {
				_, err := s.Get(t.Context(), object)
				if want := reads[object]; (err == nil) != want || !want && !errors.Is(err, pki.ErrForbidden) {
					t.Errorf("reading %s: %v, want it allowed: %v", object, err, want)
				}
				_, err = s.GetAll(t.Context(), pki.PublicKubernetes, object)
				if want := reads[object]; (err == nil) != want || !want && !errors.Is(err, pki.ErrForbidden) {
					t.Errorf("reading %s with another: %v, want it allowed: %v", object, err, want)
				}
				err = s.Put(t.Context(), object, []byte("new"))
				if want := r == role.Masters && object == pki.BootstrapToken; (err == nil) != want || !want && !errors.Is(err, pki.ErrForbidden) {
					t.Errorf("writing %s: %v, want it allowed: %v", object, err, want)
				}
			}
		})
	}
}

// TestReadsAtOnce counts the requests: ten objects with one, and what was read before a refusal is not read again.
func TestReadsAtOnce(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	s := connect(server.URL, operator)
	var objects []string
	for i := range 11 {
		objects = append(objects, fmt.Sprint("public/", i))
		if err := s.Create(t.Context(), objects[i], []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.GetAll(t.Context(), objects...); len(got) != 11 || err != nil || account.Calls()["ssm:GetParameters"] != 2 || account.Calls()["ssm:GetParameter"] != 0 {
		t.Errorf("%d objects by %v, %v", len(got), account.Calls(), err)
	}
	var faults awsfake.Script
	refuse := awsfake.Fault{Refuse: awsfake.Throttled()}
	faults.Add("GetParameters", awsfake.Fault{}, refuse, refuse)
	account.SetFaults(&faults)
	got, err := s.GetAll(t.Context(), objects...)
	if len(got) != 10 || !errors.Is(err, pki.ErrBusy) || !errors.Is(err, pki.ErrUnreachable) {
		t.Errorf("%d objects, %v", len(got), err)
	}
}

// TestOldPolicy is of a role that was made when only single parameters could be read.
func TestOldPolicy(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	const arn = "arn:aws:ssm:*:*:parameter" + root + "/"
	old := account.AddUser("old", awsfake.Policy{{Actions: []string{"ssm:GetParameter"}, Resources: []string{arn + "public/*"}}})
	for _, object := range []string{"public/a", "public/b", "masters/c"} {
		if err := connect(server.URL, operator).Create(t.Context(), object, []byte(object)); err != nil {
			t.Fatal(err)
		}
	}
	s := connect(server.URL, old)
	if got, err := s.GetAll(t.Context(), "public/a", "public/b", "public/none"); err != nil || len(got) != 2 || string(got["public/b"]) != "public/b" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.GetAll(t.Context(), "public/a", "masters/c", "public/b"); !errors.Is(err, pki.ErrForbidden) || !strings.Contains(err.Error(), "masters/c in") || strings.Contains(err.Error(), "public/a") {
		t.Errorf("the error is not of the one that is not allowed: %v", err)
	}
}

// instance returns the credentials that the metadata service gives to an instance whose group has one role.
func instance(t *testing.T, account *awsfake.Account, r role.Role) awsfake.Credentials {
	t.Helper()
	document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, pki.AccessOf(r), "")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := awsfake.ParsePolicy(document)
	if err != nil {
		t.Fatal(err)
	}
	name := "demo-" + string(r)
	account.AddRole(name, policy)
	c, err := account.Issue(name, "i-0123456789abcdef0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestSSMKinds checks that secrets are kept as such, and what is public is not.
func TestSSMKinds(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	s := connect(server.URL, operator)
	for object, want := range map[string]string{pki.KubernetesCA + pki.Key: "SecureString", pki.BootstrapToken: "SecureString", pki.PublicKubernetes: "String"} {
		if err := s.Put(t.Context(), object, []byte("x")); err != nil {
			t.Fatal(err)
		}
		p, ok := account.SSM().Parameter(root + "/" + object)
		if !ok || p.Type != want {
			t.Errorf("%s is a %q, want %s", object, p.Type, want)
		}
	}
}

// TestSSMLoadsAgain starts before the metadata service answers: the first failure is not the last word.
func TestSSMLoadsAgain(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	operator := account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	calls := 0
	s := store.NewSSM(root, func(context.Context) (aws.Config, error) {
		switch calls++; calls {
		case 1:
			return aws.Config{}, errors.New("the metadata service does not answer")
		case 2:
			return aws.Config{}, nil // and then knows no region yet
		}
		return aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL,
			Credentials: credentials.NewStaticCredentialsProvider(operator.AccessKey, operator.Secret, "")}, nil
	})
	for i := range 2 {
		if _, err := s.Get(t.Context(), pki.EncryptionKey); !errors.Is(err, pki.ErrUnreachable) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	for range 2 {
		if _, err := s.Get(t.Context(), pki.EncryptionKey); !errors.Is(err, pki.ErrNotFound) {
			t.Error(err)
		}
	}
	if calls != 3 {
		t.Errorf("loaded %d times, want 3", calls)
	}
}

// TestSkew asks a service whose clock is another than this machine's.
func TestSkew(t *testing.T) {
	// With a clock given, the account does not look at the dates of signatures.
	account := awsfake.New(awsfake.Options{Rates: freely, Clock: clock.System{}})
	operator := account.AddUser("operator", awsfake.Administrator())
	var ahead time.Duration
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
		account.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for _, ahead = range []time.Duration{0, time.Hour, -time.Hour} {
		s := connect(server.URL, operator)
		if err := s.Put(t.Context(), pki.BootstrapToken, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), pki.BootstrapToken); err != nil {
			t.Fatal(err)
		}
		// A Date has whole seconds.
		if off := (s.Skew() - ahead).Abs(); off > 10*time.Second {
			t.Errorf("the service is %v ahead, and it says %v", ahead, s.Skew())
		}
	}
}
