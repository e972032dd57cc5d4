package store_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestPolicyReachesNothingForeign: with the printed policy of each set of roles, what is another cluster's, another member's, or no
// secret at all, is neither read nor written nor deleted, before and after every call that the policy allows.
func TestPolicyReachesNothingForeign(t *testing.T) {
	foreign := []string{"/hardtack/beside/masters/kubernetes-ca.key", "/hardtack/demo2/masters/kubernetes-ca.key", "/hardtack/stable/image-id", "/app/password", root + "/" + role.EtcdStatus + "b", root + "/unknown"}
	for _, roles := range []string{"masters", "minions", "etcd", "masters+etcd+minions"} {
		t.Run(roles, func(t *testing.T) {
			t.Parallel()
			set, err := role.ParseSet(roles)
			if err != nil {
				t.Fatal(err)
			}
			access := pki.AccessOfAll(set).OfMember("a")
			document, err := store.Policy(store.Location{Kind: store.KindSSM, Root: root}, access, "")
			if err != nil {
				t.Fatal(err)
			}
			policy, err := awsfake.ParsePolicy(document)
			if err != nil {
				t.Fatal(err)
			}
			if grows := policy.Growth(); len(grows) > 0 {
				t.Errorf("it could be widened by %q", grows)
			}
			account := awsfake.New(awsfake.Options{Rates: freely})
			server := httptest.NewServer(account.Handler())
			t.Cleanup(server.Close)
			for _, name := range append(prefixed(objects()), foreign...) {
				if _, err := account.SSM().Put(awsfake.Parameter{Name: name, Value: "theirs", Type: awsfake.ParameterSecure}, true); err != nil {
					t.Fatal(err)
				}
			}
			account.AddRole("machine", policy)
			key, err := account.Issue("machine", "i-0123456789abcdef0", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			client := ssm.New(ssm.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
				Credentials: credentials.NewStaticCredentialsProvider(key.AccessKey, key.Secret, key.Token)})
			closedTo := func(when string) {
				t.Helper()
				for _, name := range foreign {
					object := strings.TrimPrefix(name, root+"/")
					_, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
					if !isDenied(err) && (object == name || !access.MayRead(object)) {
						t.Errorf("%s, %s is read: %v", when, name, err)
					}
					if err := overwrite(t, client, name); !isDenied(err) {
						t.Errorf("%s, %s is written: %v", when, name, err)
					}
					if _, err := client.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: &name}); !isDenied(err) {
						t.Errorf("%s, %s is deleted: %v", when, name, err)
					}
				}
			}
			closedTo("before")
			if done := everyAllowed(t, client, access); done == 0 {
				t.Error("the policy allows nothing")
			}
			closedTo("afterwards")
		})
	}
}

func prefixed(objects []string) (names []string) {
	for _, object := range objects {
		names = append(names, root+"/"+object)
	}
	return names
}

func isDenied(err error) bool { return err != nil && strings.Contains(err.Error(), "AccessDenied") }

func overwrite(t *testing.T, client *ssm.Client, name string) error {
	t.Helper()
	_, err := client.PutParameter(t.Context(), &ssm.PutParameterInput{Name: &name, Value: aws.String("ours"), Type: types.ParameterTypeSecureString, Overwrite: aws.Bool(true)})
	return err
}

// everyAllowed makes the calls that access is for, and returns how many were allowed; each must be.
func everyAllowed(t *testing.T, client *ssm.Client, access pki.Access) (done int) {
	t.Helper()
	for _, object := range objects() {
		if !access.MayRead(object) {
			continue
		}
		if _, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String(root + "/" + object), WithDecryption: aws.Bool(true)}); err != nil {
			t.Errorf("%s cannot be read: %v", object, err)
		}
		done++
	}
	for _, object := range access.Write {
		if err := overwrite(t, client, root+"/"+strings.TrimSuffix(object, "/")); err != nil && !strings.HasSuffix(object, "/") {
			t.Errorf("%s cannot be written: %v", object, err)
		}
		done++
	}
	for _, object := range access.Create {
		_, err := client.PutParameter(t.Context(), &ssm.PutParameterInput{Name: aws.String(root + "/" + object + "new"), Value: aws.String("x"), Type: types.ParameterTypeString})
		if err != nil {
			t.Errorf("%snew cannot be created: %v", object, err)
		}
		done++
	}
	return done
}
