package store_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const demoKey = "alias/hardtack-demo"

// keyed is an account with a store that its operator has filled under a key; DefaultKey is AWS's own.
type keyed struct {
	*awsfake.Account
	url      string
	operator *store.SSM
}

func newKeyed(t *testing.T, key string) keyed {
	t.Helper()
	account := awsfake.New(awsfake.Options{Rates: freely})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	account.SSM().AddKey(demoKey)
	k := keyed{account, server.URL, connect(server.URL, account.AddUser("operator", awsfake.Administrator()))}
	if key != store.DefaultKey {
		if err := k.operator.SetKey(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	for _, object := range objects() {
		if err := k.operator.Put(t.Context(), object, []byte("content of "+object)); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// as returns a session of a role with these policies.
func (k keyed) as(t *testing.T, name string, documents ...string) awsfake.Credentials {
	t.Helper()
	var policies []awsfake.Policy
	for _, d := range documents {
		p, err := awsfake.ParsePolicy([]byte(d))
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	k.AddRole(name, policies...)
	c, err := k.Issue(name, "i-0123456789abcdef0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func policyOf(t *testing.T, roles, key string) string {
	t.Helper()
	set, err := role.ParseSet(roles)
	if err != nil {
		t.Fatal(err)
	}
	document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, pki.AccessOfAll(set), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

func raw(url string, c awsfake.Credentials) *ssm.Client {
	return ssm.New(ssm.Options{Region: "us-west-2", BaseEndpoint: &url, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)})
}

// A role to which somebody attaches a policy that reads every parameter has the authority's key under AWS's own key, and
// under the cluster's key it has not, by any call.
func TestBroadPolicyDecryptsNothing(t *testing.T) {
	for key, want := range map[string]bool{store.DefaultKey: true, demoKey: false} {
		k := newKeyed(t, key)
		reader := k.as(t, "read-only", attached)
		_, err := connect(k.url, reader).Get(t.Context(), pki.KubernetesCA+pki.Key)
		if (err == nil) != want || !want && (!errors.Is(err, pki.ErrForbidden) || !strings.Contains(err.Error(), "kms:Decrypt")) {
			t.Errorf("under %s: %v", key, err)
		}
		secrets := slices.DeleteFunc(readable(t, raw(k.url, reader)), func(name string) bool { return strings.HasPrefix(name, root+"/"+role.Public) })
		if (len(secrets) > 0) != want {
			t.Errorf("under %s these can be read: %v", key, secrets)
		}
	}
}

// Each role reads and writes its own part under the cluster's key, as without one, whether the policy names an alias or
// an ARN; and with a broad policy attached no more, not even of a cluster beside this one that has a key of its own.
func TestRolesUnderKey(t *testing.T) {
	for _, roles := range []string{"masters", "etcd", "minions", "masters+etcd+minions"} {
		for _, named := range []string{"alias", "arn"} {
			k, key := newKeyed(t, demoKey), demoKey
			if named == "arn" {
				key = k.SSM().AddKey(demoKey)
			}
			k.SSM().AddKey("alias/hardtack-beside")
			for _, object := range objects() {
				if _, err := k.SSM().Put(awsfake.Parameter{Name: "/hardtack/beside/" + object, Value: "secret", Type: awsfake.ParameterSecure, Key: "alias/hardtack-beside"}, true); err != nil {
					t.Fatal(err)
				}
			}
			set, _ := role.ParseSet(roles)
			access, machine := pki.AccessOfAll(set), k.as(t, "machine", policyOf(t, roles, key))
			for _, more := range []string{"", attached} {
				if more != "" {
					machine = k.as(t, "machine", policyOf(t, roles, key), more)
				}
				s := connect(k.url, machine)
				for _, object := range objects() {
					if _, err := s.Get(t.Context(), object); (err == nil) != access.MayRead(object) || err != nil && !errors.Is(err, pki.ErrForbidden) {
						t.Errorf("%s, by %s: reading %s: %v", roles, named, object, err)
					}
					if err := s.Put(t.Context(), object, []byte("new")); (err == nil) != slices.Contains(access.Write, object) || err != nil && !errors.Is(err, pki.ErrForbidden) {
						t.Errorf("%s, by %s: writing %s: %v", roles, named, object, err)
					}
				}
				for _, name := range readable(t, raw(k.url, machine)) {
					if rest, beside := strings.CutPrefix(name, "/hardtack/beside/"); beside {
						t.Errorf("%s, by %s: reads %s of the cluster beside", roles, named, rest)
					}
				}
			}
			if p, _ := k.SSM().Parameter(root + "/" + pki.BootstrapToken); p.Key != demoKey {
				t.Errorf("%s: the token is under %s afterwards", roles, p.Key)
			}
		}
	}
}

// The permission for the key is good for nothing but the role's own parameters, through Parameter Store, with that key.
func TestPermissionForKeyIsNarrow(t *testing.T) {
	p, err := awsfake.ParsePolicy([]byte(policyOf(t, "masters", demoKey)))
	if err != nil {
		t.Fatal(err)
	}
	const here, key = "arn:aws:ssm:us-west-2:123456789012:parameter", "arn:aws:kms:us-west-2:123456789012:key/1"
	own := func(change map[string][]string) map[string][]string {
		all := map[string][]string{"kms:ViaService": {"ssm.us-west-2.amazonaws.com"}, "kms:ResourceAliases": {"alias/other", demoKey},
			"kms:EncryptionContext:PARAMETER_ARN": {here + root + "/" + pki.KubernetesCA + pki.Key}}
		for k, v := range change {
			all[k] = v
		}
		return all
	}
	for _, tt := range []struct {
		name, action string
		context      map[string][]string
		want         string
	}{
		{"as the machine does", "kms:Decrypt", own(nil), "allowed"},
		{"in China", "kms:Decrypt", own(map[string][]string{"kms:ViaService": {"ssm.cn-north-1.amazonaws.com.cn"}}), "allowed"},
		{"by itself", "kms:Decrypt", own(map[string][]string{"kms:ViaService": nil}), "implicitDeny"},
		{"through another service", "kms:Decrypt", own(map[string][]string{"kms:ViaService": {"secretsmanager.us-west-2.amazonaws.com"}}), "implicitDeny"},
		{"of another role", "kms:Decrypt", own(map[string][]string{"kms:EncryptionContext:PARAMETER_ARN": {here + root + "/" + pki.EtcdPeerCA + pki.Key}}), "implicitDeny"},
		{"of another cluster", "kms:Decrypt", own(map[string][]string{"kms:EncryptionContext:PARAMETER_ARN": {here + "/hardtack/other/" + pki.KubernetesCA + pki.Key}}), "implicitDeny"},
		{"without a context", "kms:Decrypt", own(map[string][]string{"kms:EncryptionContext:PARAMETER_ARN": nil}), "implicitDeny"},
		{"with another key", "kms:Decrypt", own(map[string][]string{"kms:ResourceAliases": {"alias/other"}}), "implicitDeny"},
		{"with a key without aliases", "kms:Decrypt", own(map[string][]string{"kms:ResourceAliases": nil}), "implicitDeny"},
		{"writing what it only reads", "kms:Encrypt", own(nil), "implicitDeny"},
		{"writing the token", "kms:Encrypt", own(map[string][]string{"kms:EncryptionContext:PARAMETER_ARN": {here + root + "/" + pki.BootstrapToken}}), "allowed"},
		{"giving it away", "kms:CreateGrant", own(nil), "implicitDeny"},
		{"encrypting it for another key", "kms:ReEncryptFrom", own(nil), "implicitDeny"},
	} {
		if got := awsfake.Decision([]awsfake.Policy{p}, tt.action, key, tt.context); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Who can write to Parameter Store's own disks gives a minion the authority's ciphertext as its token: KMS refuses, since
// the value was encrypted as another parameter's.
func TestExchangedCiphertext(t *testing.T) {
	k := newKeyed(t, demoKey)
	k.SSM().Exchange(root+"/"+pki.BootstrapToken, root+"/"+pki.KubernetesCA+pki.Key)
	got, err := connect(k.url, k.as(t, "minions", policyOf(t, "minions", demoKey))).Get(t.Context(), pki.BootstrapToken)
	if err == nil {
		t.Errorf("a minion reads %q", got)
	}
}

// A key that is off is the reason that the error tells, and machines go on when it is on again.
func TestDisabledKey(t *testing.T) {
	k := newKeyed(t, demoKey)
	s := connect(k.url, k.as(t, "masters", policyOf(t, "masters", demoKey)))
	for state, text := range map[string]string{awsfake.KeyDisabled: "is disabled", awsfake.KeyDeletion: "is pending deletion"} {
		k.SSM().SetKeyState(demoKey, state)
		_, err := s.Get(t.Context(), pki.EncryptionKey)
		if !errors.Is(err, pki.ErrForbidden) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", state, err)
		}
	}
	k.SSM().SetKeyState(demoKey, awsfake.KeyEnabled)
	if _, err := s.Get(t.Context(), pki.EncryptionKey); err != nil {
		t.Error(err)
	}
	if err := k.operator.SetKey(t.Context(), "alias/none"); err != nil {
		t.Fatal(err)
	}
	if err := k.operator.Put(t.Context(), pki.EncryptionKey, []byte("x")); !errors.Is(err, pki.ErrForbidden) || !strings.Contains(err.Error(), "alias/none") {
		t.Errorf("an unknown key: %v", err)
	}
}

// A store that moves to the key leaves no version behind that a broad policy reads, also where the move was interrupted.
func TestRekey(t *testing.T) {
	k := newKeyed(t, store.DefaultKey)
	reader := raw(k.url, k.as(t, "read-only", attached))
	if err := k.operator.SetKey(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	strays, err := k.operator.Strays(t.Context(), demoKey)
	if err != nil || len(strays) == 0 {
		t.Fatal(strays, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := k.operator.Rekey(ctx, func(done, _ int) {
		if done == len(strays)+1 {
			cancel()
		}
	}); err == nil {
		t.Fatal("it was not interrupted")
	}
	for _, object := range strays { // the last versions were first, and the earlier ones are the attack
		name := root + "/" + object
		if _, err := reader.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)}); err == nil {
			t.Errorf("%s is not under the key", object)
		}
		name += ":1"
		if _, err := reader.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)}); err != nil {
			t.Errorf("the first version of %s: %v", object, err)
		}
	}
	if err := k.operator.Rekey(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	writes := k.Calls()["ssm:PutParameter"]
	if err := k.operator.Rekey(t.Context(), nil); err != nil || k.Calls()["ssm:PutParameter"] != writes {
		t.Errorf("again: %v, %d writes", err, k.Calls()["ssm:PutParameter"]-writes)
	}
	for _, object := range objects() {
		content, err := k.operator.Get(t.Context(), object)
		if err != nil || string(content) != "content of "+object {
			t.Errorf("%s: %q, %v", object, content, err)
		}
		for version := range 130 {
			name := root + "/" + object + ":" + strconv.Itoa(version)
			_, err := reader.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
			if secret := !strings.HasPrefix(object, role.Public) && object != pki.BootstrapToken; err == nil && secret {
				t.Errorf("version %d of %s can still be read", version, object)
			}
		}
	}
}

// moto, too, says which key each version was written with.
func TestRekeyOnMoto(t *testing.T) {
	s := connect(moto.Start(t), awsfake.Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"})
	for _, object := range []string{pki.EncryptionKey, pki.BootstrapToken, pki.PublicKubernetes} {
		if err := s.Put(t.Context(), object, []byte("content")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetKey(t.Context(), demoKey); err != nil {
		t.Fatal(err)
	}
	strays, err := s.Strays(t.Context(), demoKey)
	if err != nil || !slices.Equal(strays, []string{pki.EncryptionKey, pki.BootstrapToken}) {
		t.Errorf("strays %v, %v", strays, err)
	}
	if err := s.Rekey(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if strays, err = s.Strays(t.Context(), demoKey); err != nil || len(strays) > 0 {
		t.Errorf("strays %v, %v", strays, err)
	}
}
