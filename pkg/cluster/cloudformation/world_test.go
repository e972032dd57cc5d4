package cloudformation_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	formation "github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
)

// world is an account whose time passes during sleeps.
type world struct {
	*awsfake.VirtualClock
	account *awsfake.Account
	api     *cloudformation.Client
	stacks  *formation.Stacks
	events  []formation.Event
	// asleep runs at every sleep, after the time has passed.
	asleep func()
	// answers are answers that the account does not give, by the action of a call: the XML of the call's result, or "" for the
	// account's own answer.
	answers map[string]func(form url.Values) string
}

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.Advance(d)
	w.account.Tick()
	if w.asleep != nil {
		w.asleep()
	}
	return ctx.Err()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		VirtualClock: awsfake.NewVirtualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		answers:      map[string]func(url.Values) string{},
	}
	w.account = awsfake.New(awsfake.Options{Clock: w.VirtualClock, Rates: map[string]float64{"route53": 0},
		CloudFormation: awsfake.CloudFormationOptions{Step: 3 * time.Second}})
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000a", VPC: "vpc-00000000000000001", Zone: "us-west-2a"})
	w.api = cloudformation.NewFromConfig(aws.Config{
		Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
	})
	w.stacks = &formation.Stacks{API: w.api, Clock: w, Log: slog.New(slog.DiscardHandler), OnEvent: func(e formation.Event) { w.events = append(w.events, e) }}
	return w
}

// ServeHTTP answers a call as answers say, or as the account does.
func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	form, bad := url.ParseQuery(string(body))
	if err != nil || bad != nil {
		http.Error(out, "no form", http.StatusBadRequest)
		return
	}
	action := form.Get("Action")
	if answer := w.answers[action]; answer != nil {
		if text := answer(form); text != "" {
			fmt.Fprintf(out, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>", action, text)
			return
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	w.account.Handler().ServeHTTP(out, r)
}

// deny makes the account refuse calls of this action; with "" it refuses none.
func (w *world) deny(action string) {
	policy := awsfake.Policy{{Actions: []string{"*"}, Resources: []string{"*"}}}
	if action != "" {
		policy = append(policy, awsfake.Statement{Deny: true, Actions: []string{"cloudformation:" + action}, Resources: []string{"*"}})
	}
	w.account.SetPolicy("AKIDEXAMPLE", policy)
}

// calls is how often an action of CloudFormation was called.
func (w *world) calls(action string) int { return w.account.Calls()["cloudformation:"+action] }

// template has a zone of the name and a security group with the description.
func template(zone, description string) string {
	return fmt.Sprintf(`AWSTemplateFormatVersion: "2010-09-09"
Parameters:
  Vpc: {Type: AWS::EC2::VPC::Id}
  Note: {Type: String, Default: none}
Resources:
  Zone:
    Type: AWS::Route53::HostedZone
    Properties: {Name: %s, VPCs: [{VPCId: {Ref: Vpc}, VPCRegion: {Ref: AWS::Region}}]}
  Guard:
    Type: AWS::EC2::SecurityGroup
    Properties: {GroupDescription: %s, VpcId: {Ref: Vpc}, Tags: [{Key: note, Value: {Ref: Note}}]}
Outputs:
  ZoneId: {Value: {Ref: Zone}}
`, zone, description)
}

func proposal(body string) formation.Proposal {
	return formation.Proposal{Stack: "demo", Template: body, Parameters: map[string]string{"Vpc": "vpc-00000000000000001"}}
}

func (w *world) propose(t *testing.T, p formation.Proposal) *formation.Plan {
	t.Helper()
	plan, err := w.stacks.Propose(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func (w *world) deploy(t *testing.T, p formation.Proposal) *formation.Stack {
	t.Helper()
	now, err := w.stacks.Execute(t.Context(), w.propose(t, p))
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// told are the events that were reported, as text.
func (w *world) told() string {
	var list []string
	for _, e := range w.events {
		list = append(list, e.Resource+" "+e.Status)
	}
	return strings.Join(list, ", ")
}

// left lists the existing change sets and stacks.
func (w *world) left(t *testing.T) string {
	t.Helper()
	out, err := w.api.DescribeStacks(t.Context(), &cloudformation.DescribeStacksInput{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, s := range out.Stacks {
		sets, err := w.api.ListChangeSets(t.Context(), &cloudformation.ListChangeSetsInput{StackName: s.StackName})
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		for _, set := range sets.Summaries {
			if set.ExecutionStatus != "EXECUTE_COMPLETE" {
				open++
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %d", *s.StackName, s.StackStatus, open))
	}
	return strings.Join(lines, ", ")
}

// summary is a plan as text.
func summary(changes []formation.Change) string {
	var out []string
	for _, c := range changes {
		text := c.Action + " " + c.Resource
		if c.Replacement != "" {
			text += " " + c.Replacement
		}
		for _, p := range c.Properties {
			text += strings.TrimSuffix(fmt.Sprintf(" %s/%s/%s", p.Name, p.Recreates, p.Cause), "/")
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
