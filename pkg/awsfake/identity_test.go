package awsfake_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// config is an SDK configuration that signs with c and does not retry; edit may change requests once signed.
func config(url string, c awsfake.Credentials, edit func(*http.Request)) aws.Config {
	return aws.Config{
		Region: "us-west-2", BaseEndpoint: &url, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token),
		HTTPClient: awshttp.Client(doer(func(r *http.Request) (*http.Response, error) {
			if edit != nil {
				edit(r)
			}
			return http.DefaultClient.Do(r)
		})),
	}
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// calls makes one harmless call of each service.
func calls(ctx context.Context, c aws.Config) map[string]error {
	errs := map[string]error{}
	_, errs["autoscaling"] = autoscaling.NewFromConfig(c).DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{})
	_, errs["ec2"] = ec2.NewFromConfig(c).DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	_, errs["route53"] = route53.NewFromConfig(c).ListHostedZonesByName(ctx, &route53.ListHostedZonesByNameInput{})
	_, errs["sqs"] = sqs.NewFromConfig(c).ListQueues(ctx, &sqs.ListQueuesInput{})
	_, errs["ssm"] = ssm.NewFromConfig(c).GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String("/demo/token"), WithDecryption: aws.Bool(true)})
	_, errs["sts"] = sts.NewFromConfig(c).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return errs
}

func codeOf(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

// each returns the error code of every service: code, except for the services in own.
func each(code string, own map[string]string) map[string]string {
	want := map[string]string{}
	for _, service := range []string{"autoscaling", "ec2", "route53", "sqs", "ssm", "sts"} {
		if want[service] = code; own[service] != "" {
			want[service] = own[service]
		}
	}
	return want
}

// people is a region with credentials of several kinds.
type people struct {
	url                                                 string
	admin, master, short, nobody, stranger, bare, guess awsfake.Credentials
}

func newPeople(t *testing.T) people {
	t.Helper()
	clock := awsfake.NewVirtualClock(start)
	a := awsfake.New(awsfake.Options{Clock: clock, Rates: unlimited})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	if _, err := a.SSM().Put(awsfake.Parameter{Name: "/demo/token", Value: "x", Type: awsfake.ParameterSecure}, false); err != nil {
		t.Fatal(err)
	}
	p := people{url: server.URL, stranger: awsfake.Credentials{AccessKey: "AKIDEXAMPLE", Secret: "secret"}}
	p.check(t, "an open account", p.stranger, nil, each("ok", nil))
	p.admin = a.AddUser("admin", awsfake.Administrator())
	a.AddRole("masters", awsfake.Administrator())
	a.AddRole("nobody")
	issue := func(role string, ttl time.Duration) awsfake.Credentials {
		t.Helper()
		c, err := a.Issue(role, "i-0123456789abcdef0", ttl)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	p.master, p.short, p.nobody = issue("masters", time.Hour), issue("masters", time.Minute), issue("nobody", time.Hour)
	clock.Advance(time.Minute)
	p.bare, p.guess = p.master, p.master
	p.bare.Token, p.guess.Secret = "", "guess"
	return p
}

func (p people) check(t *testing.T, name string, c awsfake.Credentials, edit func(*http.Request), want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for service, err := range calls(t.Context(), config(p.url, c, edit)) {
		got[service] = codeOf(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// forged returns the services' codes for a wrong signature.
func forged() map[string]string {
	return each("SignatureDoesNotMatch", map[string]string{"ec2": "AuthFailure", "sqs": "InvalidSignatureException", "ssm": "InvalidSignatureException"})
}

// TestWhoCalls checks every service's answer to known, unknown and expired credentials.
func TestWhoCalls(t *testing.T) {
	p := newPeople(t)
	unknown := each("InvalidClientTokenId", map[string]string{"ec2": "AuthFailure", "sqs": "UnrecognizedClientException", "ssm": "UnrecognizedClientException"})
	p.check(t, "the user", p.admin, nil, each("ok", nil))
	p.check(t, "the role", p.master, nil, each("ok", nil))
	p.check(t, "a stranger", p.stranger, nil, unknown)
	p.check(t, "the role without its token", p.bare, nil, unknown)
	p.check(t, "a wrong secret", p.guess, nil, forged())
	p.check(t, "a session that has ended", p.short, nil,
		each("ExpiredToken", map[string]string{"ec2": "RequestExpired", "sqs": "ExpiredTokenException", "ssm": "ExpiredTokenException"}))
	p.check(t, "who may do nothing", p.nobody, nil,
		each("AccessDenied", map[string]string{"ec2": "UnauthorizedOperation", "sqs": "AccessDeniedException", "ssm": "AccessDeniedException", "sts": "ok"}))

	out, err := sts.NewFromConfig(config(p.url, p.master, nil)).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{})
	if err != nil {
		t.Fatal(err)
	}
	if *out.Arn != "arn:aws:sts::123456789012:assumed-role/masters/i-0123456789abcdef0" || *out.Account != "123456789012" || !strings.HasSuffix(*out.UserId, ":i-0123456789abcdef0") {
		t.Errorf("the role is %s, %s", *out.Arn, *out.UserId)
	}
	_, err = ssm.NewFromConfig(config(p.url, p.nobody, nil)).GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/demo/token")})
	wantRefusal(t, err, "AccessDeniedException", "User: arn:aws:sts::123456789012:assumed-role/nobody/i-0123456789abcdef0 is not authorized to perform: ssm:GetParameter on resource: arn:aws:ssm:us-west-2:123456789012:parameter/demo/token because no identity-based policy allows the ssm:GetParameter action")
}

// TestTamperedCalls changes each part of a request that its signature covers.
func TestTamperedCalls(t *testing.T) {
	p := newPeople(t)
	for name, edit := range map[string]func(*http.Request){
		"another header": func(r *http.Request) { r.Header.Set("X-Amz-Meta", "x") },
		"another host":   func(r *http.Request) { r.Host = "else.example" },
		"another date":   func(r *http.Request) { r.Header.Set("X-Amz-Date", "20260301T000000Z") },
		"another query":  func(r *http.Request) { r.URL.RawQuery = "Marker=x" },
		"another body": func(r *http.Request) {
			body := []byte(" ")
			if r.Body != nil {
				signed, _ := io.ReadAll(r.Body)
				body = append(signed, body...)
			}
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
	} {
		p.check(t, name, p.master, edit, forged())
	}
}

// TestIssueRefuses checks the sessions for which no credentials are issued.
func TestIssueRefuses(t *testing.T) {
	a := awsfake.New(awsfake.Options{})
	a.AddRole("r")
	for _, in := range []struct {
		role, session string
		ttl           time.Duration
	}{{"none", "i-1", time.Hour}, {"r", "x", time.Hour}, {"r", "a b", time.Hour}, {"r", "i-1", 0}} {
		if c, err := a.Issue(in.role, in.session, in.ttl); err == nil || c.AccessKey != "" {
			t.Errorf("%+v: %+v, %v", in, c, err)
		}
	}
}

// TestSignatureDate: with the machine's own clock, a signature with a wrong date is refused. The SDK's clients then
// correct themselves by the answer's date.
func TestSignatureDate(t *testing.T) {
	a := awsfake.New(awsfake.Options{})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	admin := a.AddUser("admin", awsfake.Administrator())
	wrong := config(server.URL, admin, nil)
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		// There is no clock to set in the SDK: a request that is old by now is signed by hand.
		request := signedBy(t, admin, server.URL, time.Now().Add(off))
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		text := map[bool]string{true: "Signature expired", false: "Signature not yet current"}[off < 0]
		if answer.StatusCode != 403 || !bytes.Contains(body, []byte("<Code>SignatureDoesNotMatch</Code>")) || !bytes.Contains(body, []byte(text)) {
			t.Errorf("a clock off by %v: %d %s", off, answer.StatusCode, body)
		}
	}
	if _, err := sts.NewFromConfig(wrong).GetCallerIdentity(t.Context(), &sts.GetCallerIdentityInput{}); err != nil {
		t.Errorf("at the right time: %v", err)
	}
}

// TestSecretsOfRoles checks the cluster's roles: masters read the keys, minions only the token.
func TestSecretsOfRoles(t *testing.T) {
	a := awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	for _, name := range []string{"/demo/pki/ca.key", "/demo/pki/front/ca.key", "/demo/bootstrap/token", "/other/pki/ca.key"} {
		if _, err := a.SSM().Put(awsfake.Parameter{Name: name, Value: "secret", Type: awsfake.ParameterSecure}, false); err != nil {
			t.Fatal(err)
		}
	}
	const arn = "arn:aws:ssm:us-west-2:123456789012:parameter/demo/"
	read := `{"Effect": "Allow", "Action": ["ssm:GetParameter", "ssm:GetParametersByPath"], "Resource": "` + arn
	a.AddRole("masters", policy(t, read+`*"}`))
	a.AddRole("minions", policy(t, read+`bootstrap/*"}`))
	a.AddRole("careful", policy(t, read+`*"}`, `{"Effect": "Deny", "Action": "ssm:Get*", "Resource": "*", "Condition": {"Bool": {"ssm:Recursive": "true"}}}`))
	const forbidden = "AccessDeniedException"
	for role, want := range map[string][]string{ // the key, the token, another cluster's key, everything below pki, one level of it
		"masters": {"ok", "ok", forbidden, "2", "1"},
		"minions": {forbidden, "ok", forbidden, forbidden, forbidden},
		"careful": {"ok", "ok", forbidden, forbidden, "1"},
	} {
		c, err := a.Issue(role, "i-0123456789abcdef0", time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		client := ssm.NewFromConfig(config(server.URL, c, nil))
		var got []string
		for _, name := range []string{"/demo/pki/ca.key", "/demo/bootstrap/token", "/other/pki/ca.key"} {
			_, err := client.GetParameter(t.Context(), &ssm.GetParameterInput{Name: &name, WithDecryption: aws.Bool(true)})
			got = append(got, codeOf(err))
		}
		for _, recursive := range []bool{true, false} {
			out, err := client.GetParametersByPath(t.Context(), &ssm.GetParametersByPathInput{Path: aws.String("/demo/pki"), Recursive: &recursive, WithDecryption: aws.Bool(true)})
			if err != nil {
				got = append(got, codeOf(err))
				continue
			}
			got = append(got, string(rune('0'+len(out.Parameters))))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
		_, err = client.PutParameter(t.Context(), &ssm.PutParameterInput{Name: aws.String("/demo/pki/mine"), Value: aws.String("x"), Type: types.ParameterTypeString})
		if codeOf(err) != forbidden {
			t.Errorf("%s writes: %v", role, err)
		}
	}
}

// TestNeedsOfGroups: a role does what it may to the groups, the machines and the queue of its own cluster.
func TestNeedsOfGroups(t *testing.T) {
	a := awsfake.New(awsfake.Options{})
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	ids := map[string]string{}
	for _, cluster := range []string{"demo", "else"} {
		name := cluster + "-masters"
		if err := a.AutoScaling().Create(awsfake.Group{Name: name, Max: 1, Tags: map[string]string{"KubernetesCluster": cluster}}); err != nil {
			t.Fatal(err)
		}
		if err := a.AutoScaling().PutHook(name, awsfake.Hook{Name: "up", Transition: "autoscaling:EC2_INSTANCE_LAUNCHING"}); err != nil {
			t.Fatal(err)
		}
		if err := a.AutoScaling().SetDesired(name, 1); err != nil {
			t.Fatal(err)
		}
		ids[cluster] = a.AutoScaling().Instances(name)[0].ID
	}
	queue, err := a.SQS().CreateQueue("pokes", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.SQS().CreateQueue("others", nil); err != nil {
		t.Fatal(err)
	}
	a.AddRole("masters", policy(t,
		`{"Effect": "Allow", "Action": "autoscaling:CompleteLifecycleAction", "Resource": "arn:*:autoscaling:*:*:autoScalingGroup:*:autoScalingGroupName/*", "Condition": {"StringEquals": {"aws:ResourceTag/KubernetesCluster": "demo"}}}`,
		`{"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": "arn:aws:sqs:us-west-2:123456789012:pokes"}`,
		`{"Effect": "Allow", "Action": "ec2:TerminateInstances", "Resource": "arn:aws:ec2:*:*:instance/*", "Condition": {"StringEquals": {"aws:ResourceTag/KubernetesCluster": "demo"}, "ArnLike": {"ec2:SourceInstanceARN": "arn:aws:ec2:*:*:instance/i-*"}}}`))
	c, err := a.Issue("masters", ids["demo"], time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cfg := config(server.URL, c, nil)
	complete := func(cluster string) string {
		_, err := autoscaling.NewFromConfig(cfg).CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: aws.String(cluster + "-masters"), LifecycleHookName: aws.String("up"), InstanceId: aws.String(ids[cluster]), LifecycleActionResult: aws.String("CONTINUE")})
		return codeOf(err)
	}
	send := func(url string) string {
		_, err := sqs.NewFromConfig(cfg).SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String("x")})
		return codeOf(err)
	}
	end := func(cluster string) string {
		_, err := ec2.NewFromConfig(cfg).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{ids[cluster]}})
		return codeOf(err)
	}
	got := []string{complete("demo"), complete("else"), send(queue), send(strings.Replace(queue, "pokes", "others", 1)), end("else"), end("demo")}
	want := []string{"ok", "AccessDenied", "ok", "AccessDeniedException", "UnauthorizedOperation", "ok"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a master may (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"autoscaling:CompleteLifecycleAction": 1, "sqs:SendMessage": 1, "ec2:TerminateInstances": 1}, a.Used("masters")); diff != "" {
		t.Errorf("a master has used (-want +got):\n%s", diff)
	}
}

// policy is a document of these statements.
func policy(t *testing.T, statements ...string) awsfake.Policy {
	t.Helper()
	p, err := awsfake.ParsePolicy([]byte(`{"Version": "2012-10-17", "Statement": [` + strings.Join(statements, ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
