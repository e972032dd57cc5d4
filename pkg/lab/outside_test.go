package lab

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// computed are the keys that anybody can compute who knows how the lab once made them: each from the name of its user
// and from its number.
func computed(user string, number int) AWS {
	digits := func(kind string, n, digits int) string {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, n))
		return strings.ToUpper(hex.EncodeToString(sum[:])[:digits])
	}
	secret := sha256.Sum256(fmt.Appendf(nil, "secret AIDA%s %d", digits("user/"+user, 0, 17), number))
	return AWS{Region: regionName, AccessKey: "AKIA" + digits("key", number, 16), Secret: base64.StdEncoding.EncodeToString(secret[:30])}
}

// TestComputedKeys is the attack of a program on this computer, or of a pod in one of the lab's machines, that was
// given no key and computes the owner's: it gets nothing of the region's secrets.
func TestComputedKeys(t *testing.T) {
	plan := planned(t)
	plan.Empty = true
	_, c := up(t, plan)
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := aws.String("/hardtack/demo/masters/kubernetes-ca.key")
	_, err = ssm.NewFromConfig(ownerOf(at)).PutParameter(t.Context(), &ssm.PutParameterInput{Name: name, Value: aws.String("a secret"), Type: ssmtypes.ParameterTypeSecureString})
	if err != nil {
		t.Fatal(err)
	}
	for number := range 5 {
		forged := computed("owner", number)
		forged.Endpoint = at.Endpoint
		got, err := ssm.NewFromConfig(ownerOf(forged)).GetParameter(t.Context(), &ssm.GetParameterInput{Name: name, WithDecryption: aws.Bool(true)})
		var refused smithy.APIError
		if !errors.As(err, &refused) {
			t.Fatalf("key %d, %s, computed without a secret, reads %q (%v)", number, forged.AccessKey, aws.ToString(got.Parameter.Value), err)
		}
	}
	// The owner's own key is none that another lab has.
	_, other := up(t, plan)
	second, err := other.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if at.Secret == second.Secret {
		t.Error("two labs have the same owner's secret")
	}
}

// TestClosed asks the region's APIs before their first user exists: no key is taken.
func TestClosed(t *testing.T) {
	server := httptest.NewServer(newAccount(Home{Dir: t.TempDir()}, nil).Handler())
	defer server.Close()
	guess := ownerOf(AWS{Region: regionName, AccessKey: "AKIAIOSFODNN7EXAMPLE", Secret: "any", Endpoint: server.URL})
	_, err := sts.NewFromConfig(guess).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	var refused smithy.APIError
	if !errors.As(err, &refused) || refused.ErrorCode() != "InvalidClientTokenId" {
		t.Errorf("without users the region answers any key: %v", err)
	}
}
