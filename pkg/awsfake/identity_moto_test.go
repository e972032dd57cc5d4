package awsfake_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
)

const annasPolicy = `{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Action": ["route53:List*", "ec2:*", "sts:*"], "Resource": "*"},
	{"Effect": "Deny", "Action": ["route53:ListTags*", "sts:Get*"], "Resource": "*"}]}`

// TestIdentityAgainstMoto compares both stand-ins as far as moto is right: GetCallerIdentity, whatever a policy
// denies, and EC2's refusals of keys and signatures. It leaves out what moto 5.2.1 does not model: the errors of the
// other services (the SDK finds no code in them, and those of the JSON services are not JSON), EC2's
// UnauthorizedOperation, Route 53 (it fails), resources and conditions.
func TestIdentityAgainstMoto(t *testing.T) {
	t.Setenv("INITIAL_NO_AUTH_ACTION_COUNT", "3") // the calls that make anna; moto checks every call after them
	theirs := moto.Start(t)
	anna := annaOfMoto(t, theirs)
	a := awsfake.New(awsfake.Options{Rates: unlimited})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	p, err := awsfake.ParsePolicy([]byte(annasPolicy))
	if err != nil {
		t.Fatal(err)
	}
	want, got := judged(t, theirs, anna), judged(t, server.URL, a.AddUser("anna", p))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("moto (-) and awsfake (+) differ:\n%s", diff)
	}
}

// judged returns a region's answers to anna, to a stranger, and to a caller with anna's key and a wrong secret.
func judged(t *testing.T, endpoint string, anna awsfake.Credentials) (said []string) {
	t.Helper()
	guess := anna
	guess.Secret = "guess"
	stranger := awsfake.Credentials{AccessKey: "AKIAIOSFODNN7EXAMPLE", Secret: "secret"}
	for i, c := range []awsfake.Credentials{anna, guess, stranger} {
		for service, err := range calls(t.Context(), config(endpoint, c, nil)) {
			if service == "ec2" || service == "sts" && i == 0 {
				said = append(said, fmt.Sprint(i, " ", service, " ", codeOf(err)))
			}
		}
	}
	out, err := sts.NewFromConfig(config(endpoint, anna, nil)).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Sorted(slices.Values(said)), *out.Arn, *out.Account)
}

// annaOfMoto makes moto's user with the three calls that are free.
func annaOfMoto(t *testing.T, endpoint string) awsfake.Credentials {
	t.Helper()
	var answer []byte
	for _, form := range []url.Values{
		{"Action": {"CreateUser"}, "UserName": {"anna"}},
		{"Action": {"PutUserPolicy"}, "UserName": {"anna"}, "PolicyName": {"p"}, "PolicyDocument": {annasPolicy}},
		{"Action": {"CreateAccessKey"}, "UserName": {"anna"}},
	} {
		form.Set("Version", "2010-05-08")
		response, err := http.DefaultClient.Do(signedForm(t, awsfake.Credentials{AccessKey: "x", Secret: "x"}, endpoint, "iam", form.Encode(), time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		answer, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", form.Get("Action"), response.StatusCode, answer, err)
		}
	}
	field := func(name string) string {
		m := regexp.MustCompile("<" + name + ">(.*)</" + name + ">").FindSubmatch(answer)
		if m == nil {
			t.Fatalf("no %s in %s", name, answer)
		}
		return string(m[1])
	}
	return awsfake.Credentials{AccessKey: field("AccessKeyId"), Secret: field("SecretAccessKey")}
}
