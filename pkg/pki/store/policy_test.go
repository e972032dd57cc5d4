package store_test

import (
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// attached is what people attach to instance roles: reading as in AmazonSSMManagedInstanceCore, and ReadOnlyAccess's.
const attached = `{"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["ssm:Get*", "ssm:Describe*", "ssm:List*"], "Resource": "*"}}`

// objects are all objects of a store.
func objects() []string {
	list := []string{pki.ServiceAccount + pki.Key, pki.ServiceAccount + pki.Pub, pki.EncryptionKey, pki.BootstrapToken, pki.RegistryObject("registry.example.org:5000"), pki.PublicKubernetes, pki.PublicInfo}
	for _, a := range pki.Authorities() {
		list = append(list, a+pki.Crt, a+pki.Key)
	}
	return list
}

// A policy that is attached to a role later does not open another role's secrets, by any call that reads. Of a cluster
// beside this one it opens at most what the role reads here: that IAM cannot except one store is what Policy says.
func TestAttachedPolicyOpensNothing(t *testing.T) {
	const beside = "/hardtack/beside"
	for _, roles := range []string{"masters", "minions", "etcd", "masters+minions", "masters+etcd", "masters+etcd+minions"} {
		t.Run(roles, func(t *testing.T) {
			t.Parallel()
			set, err := role.ParseSet(roles)
			if err != nil {
				t.Fatal(err)
			}
			access := pki.AccessOfAll(set)
			account := awsfake.New(awsfake.Options{Rates: freely})
			server := httptest.NewServer(account.Handler())
			t.Cleanup(server.Close)
			for _, object := range objects() {
				for _, at := range []string{root, beside} {
					if _, err := account.SSM().Put(awsfake.Parameter{Name: at + "/" + object, Value: "secret", Type: awsfake.ParameterSecure}, true); err != nil {
						t.Fatal(err)
					}
				}
			}
			document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, access, "")
			if err != nil {
				t.Fatal(err)
			}
			own, err1 := awsfake.ParsePolicy(document)
			more, err2 := awsfake.ParsePolicy([]byte(attached))
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			account.AddRole("machine", own, more)
			key, err := account.Issue("machine", "i-0123456789abcdef0", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			client := ssm.New(ssm.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
				Credentials: credentials.NewStaticCredentialsProvider(key.AccessKey, key.Secret, key.Token)})
			for _, name := range readable(t, client) {
				object, here := strings.CutPrefix(name, root+"/")
				if !here {
					object = strings.TrimPrefix(name, beside+"/")
				}
				if !access.MayRead(object) {
					t.Errorf("%s can be read", name)
				}
			}
			for _, object := range objects() {
				if _, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(root + "/" + object)}); (err == nil) != access.MayRead(object) {
					t.Errorf("%s: %v", object, err)
				}
			}
		})
	}
}

// The credentials of registries are for whoever pulls images, and for nobody else.
func TestWhoReadsRegistries(t *testing.T) {
	for roles, want := range map[string]bool{"masters": false, "etcd": false, "masters+etcd": false, "minions": true, "masters+minions": true} {
		set, err := role.ParseSet(roles)
		if err != nil {
			t.Fatal(err)
		}
		document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, pki.AccessOfAll(set), "")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(document), root+"/minions/registries/*"); got != want {
			t.Errorf("%s may read them: %v\n%s", roles, got, document)
		}
		if pki.AccessOfAll(set).MayRead(pki.RegistryObject("docker.io")) != want {
			t.Errorf("%s read them: %v", roles, !want)
		}
	}
}

// readable are the names of the parameters whose values some call tells.
func readable(t *testing.T, client *ssm.Client) (names []string) {
	t.Helper()
	ctx, tell := t.Context(), func(name *string) { names = append(names, *name) }
	for _, object := range objects() {
		for _, at := range []string{root, "/hardtack/beside"} {
			name := at + "/" + object
			if out, err := client.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{name}, WithDecryption: aws.Bool(true)}); err == nil {
				for _, p := range out.Parameters {
					tell(p.Name)
				}
			}
			if out, err := client.GetParameterHistory(ctx, &ssm.GetParameterHistoryInput{Name: &name, WithDecryption: aws.Bool(true)}); err == nil {
				for _, p := range out.Parameters {
					tell(p.Name)
				}
			}
		}
	}
	for _, path := range []string{"/", "/hardtack", root, root + "/masters", root + "/etcd", root + "/minions"} {
		if out, err := client.GetParametersByPath(ctx, &ssm.GetParametersByPathInput{Path: &path, Recursive: aws.Bool(true), WithDecryption: aws.Bool(true)}); err == nil {
			for _, p := range out.Parameters {
				tell(p.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// A member's machine creates a record where there is none, and neither it nor another machine changes one; of the states
// it writes its own alone. The very calls are those of the store.
func TestRecordsAreCreatedOnce(t *testing.T) {
	account := awsfake.New(awsfake.Options{Rates: freely})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	as := func(roles, member string) (alone, more *store.SSM, client *ssm.Client) {
		set, err := role.ParseSet(roles)
		if err != nil {
			t.Fatal(err)
		}
		document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, pki.AccessOfAll(set).OfMember(member), "")
		if err != nil {
			t.Fatal(err)
		}
		policy, err := awsfake.ParsePolicy(document)
		if err != nil {
			t.Fatal(err)
		}
		// And all of Parameter Store, which people attach too: what is decided stays.
		account.AddRole(roles+member, policy)
		account.AddRole(roles+member+"+all", policy, awsfake.Policy{{Actions: []string{"ssm:*"}, Resources: []string{"*"}}})
		key, err1 := account.Issue(roles+member, "i-0123456789abcdef0", time.Hour)
		all, err2 := account.Issue(roles+member+"+all", "i-0123456789abcdef0", time.Hour)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return connect(server.URL, key), connect(server.URL, all), ssm.New(ssm.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
			Credentials: credentials.NewStaticCredentialsProvider(all.AccessKey, all.Secret, all.Token)})
	}
	const record = role.EtcdRecords + "epochs/1/started-a"
	a, more, client := as("etcd", "a")
	b, _, _ := as("etcd", "b")
	master, _, _ := as("masters", "")
	minion, _, _ := as("minions", "")
	is := func(who string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v, want %v", who, err, want)
		}
	}
	ctx := t.Context()
	is("a master creates", master.Create(ctx, record, []byte("1")), pki.ErrForbidden)
	is("a minion creates", minion.Create(ctx, record, []byte("1")), pki.ErrForbidden)
	is("a member creates", a.Create(ctx, record, []byte("1")), nil)
	is("the same again", a.Create(ctx, record, []byte("2")), pki.ErrExists)
	is("another creates it", b.Create(ctx, record, []byte("2")), pki.ErrExists)
	is("the same changes it", a.Put(ctx, record, []byte("2")), pki.ErrForbidden)
	is("the same swaps it", a.Swap(ctx, record, []byte("1"), []byte("2")), pki.ErrForbidden)
	is("with more rights", more.Put(ctx, record, []byte("2")), pki.ErrForbidden)
	if _, err := client.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: aws.String(root + "/" + record)}); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("a member deletes a record: %v", err)
	}
	is("a member creates an authority", a.Create(ctx, pki.EtcdPeerCA+pki.Key+"2", []byte("x")), pki.ErrForbidden)
	is("its state", a.Put(ctx, role.EtcdStatus+"a", []byte("1")), nil)
	is("its state again", a.Put(ctx, role.EtcdStatus+"a", []byte("2")), nil)
	is("another's state", b.Put(ctx, role.EtcdStatus+"a", []byte("3")), pki.ErrForbidden)
	is("a master writes a state", master.Put(ctx, role.EtcdStatus+"a", []byte("3")), pki.ErrForbidden)
	for object, want := range map[string]string{record: "1", role.EtcdStatus + "a": "2"} {
		for who, s := range map[string]*store.SSM{"a": a, "b": b, "a master": master} {
			if got, err := s.Get(ctx, object); err != nil || string(got) != want {
				t.Errorf("%s reads %q of %s, %v", who, got, object, err)
			}
		}
		_, err := minion.Get(ctx, object)
		is("a minion reads "+object, err, pki.ErrForbidden)
	}
}
