package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/preflight"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// policyCommand prints a policy with every permission.
const policyCommand = "hardtack stack doctor --policy"

// Doctor checks whether Apply with this deployment would find what it needs: credentials, permissions, the cluster's secrets, an image that
// fits, quotas, and a network in which machines come up. It changes nothing, and one part that cannot be read does not end the others.
func (c *Cluster) Doctor(ctx context.Context, deploy Deployment) doctor.List {
	out, err := sts.NewFromConfig(c.config.AWS).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return doctor.List{{Name: "credentials", State: doctor.Error, Text: "AWS does not say who these credentials are: " + err.Error(),
			Next: "sign in (aws sso login, or aws configure), and see that AWS_PROFILE and the region are the ones that you mean: aws sts get-caller-identity"}}
	}
	who := preflight.Caller{ARN: aws.ToString(out.Arn), Account: aws.ToString(out.Account)}
	checks := doctor.List{{Name: "credentials", State: doctor.OK, Text: fmt.Sprintf("%s, in account %s and region %s", who.ARN, who.Account, c.config.AWS.Region)}}
	checks = append(checks, c.checkSecrets(ctx))
	tmpl, given, stack, made := c.checkStack(ctx, deploy)
	checks = append(checks, made...)
	checks = append(checks, c.checkImage(ctx, deploy)...)
	if tmpl == nil {
		return checks // what it would make is not known
	}
	facts := preflight.Facts{Caller: who}
	plan := c.planOf(who, tmpl, given, deploy)
	facts.Caller.Principal, facts.Decisions = c.decisions(ctx, who.ARN, plan.Needs())
	facts.Quotas = c.quotas(ctx, tmpl, stack, given)
	facts.Network = c.network(ctx, given)
	w := preflight.Wanted{Calls: tmpl.MachineCalls(), Zone: role.Zone, ZoneID: given[template.ParameterZone], Made: stack.Value.Made(), PolicyCommand: policyCommand}
	for _, key := range []string{template.ParameterSubnets, template.ParameterMembers} {
		w.Subnets = append(w.Subnets, listOf(given[key])...)
	}
	own := c.config.Document.Cluster.Network
	w.Ranges = map[string]string{"network.podCIDR": own.PodCIDR, "network.serviceCIDR": own.ServiceCIDR}
	for _, g := range c.config.Document.Groups {
		w.Machines += g.AWS.Max
	}
	return append(checks, preflight.Judge(facts, w)...)
}

// Permissions is the IAM policy, as JSON, with everything that these commands call, and CloudFormation for them. It asks AWS for the number
// of the account alone.
func (c *Cluster) Permissions(ctx context.Context, deploy Deployment) ([]byte, error) {
	out, err := sts.NewFromConfig(c.config.AWS).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return nil, fmt.Errorf("asking for the number of the account: %w", awserr.Explain(err, "sts:GetCallerIdentity"))
	}
	tmpl, err := template.Render(c.config.Document, deploy.CA)
	if err != nil {
		return nil, fmt.Errorf("making the template of %s: %w", c.name, err)
	}
	who := preflight.Caller{ARN: aws.ToString(out.Arn), Account: aws.ToString(out.Account)}
	return preflight.Policy(c.planOf(who, tmpl, deploy.Parameters, deploy).Needs())
}

func listOf(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkSecrets checks the cluster's own facts in its store, which machines compare with the document.
func (c *Cluster) checkSecrets(ctx context.Context) doctor.Check {
	const name = "secrets"
	switch err := c.checkAgreed(ctx); {
	case errors.Is(err, pki.ErrNotFound):
		return doctor.Check{Name: name, State: doctor.Error, Text: "there are no authorities and keys in " + c.config.Document.Cluster.Store + " yet", Next: "hardtack pki create"}
	case awserr.KindOf(err) == awserr.Denied:
		return preflight.Unread(name, policyCommand, known(err, "ssm:GetParameter and ssm:GetParametersByPath"))
	case err != nil:
		return doctor.Check{Name: name, State: doctor.Error, Text: err.Error(), Next: "change the document, or see hardtack pki show"}
	}
	return doctor.Check{Name: name, State: doctor.OK, Text: "the cluster's facts in " + c.config.Document.Cluster.Store + " are as the document says"}
}

// checkStack checks what the stack would be made from. The template is nil if it cannot be rendered; given are the parameters with which
// the stack would be deployed, and those that it has.
func (c *Cluster) checkStack(ctx context.Context, deploy Deployment) (tmpl *template.Template, given map[string]string, stack doctor.Known[*cloudformation.Stack], checks doctor.List) {
	fail := func(name, next string, err error) {
		checks = append(checks, doctor.Check{Name: name, State: doctor.Error, Text: err.Error(), Next: next})
	}
	tmpl, err := template.Render(c.config.Document, deploy.CA)
	if err != nil {
		fail("document", "change the document", err)
		return nil, nil, stack, checks
	}
	given = maps.Clone(deploy.Parameters)
	if given == nil {
		given = map[string]string{}
	}
	now, err := c.describe(ctx)
	stack = doctor.Known[*cloudformation.Stack]{Value: now, Err: known(err, "cloudformation:DescribeStacks")}
	if err != nil {
		checks = append(checks, preflight.Unread("stack", policyCommand, stack.Err))
		return tmpl, given, stack, checks
	}
	have := map[string]string{}
	text := "there is no stack " + c.stack + " yet"
	if now.Made() {
		have, text = now.Parameters, "stack "+c.stack+" is "+now.Status
	}
	checks = append(checks, doctor.Check{Name: "stack", State: doctor.OK, Text: text})
	placed, err := c.place(ctx, tmpl, now, given)
	if err == nil {
		given = placed
		_, err = tmpl.Settle(given, have)
	}
	var wrong *template.ParameterError
	switch {
	case errors.As(err, &wrong):
		for _, w := range wrong.Wrong {
			fail("parameters."+w.Name, "give it with its flag: hardtack stack apply --help lists them", errors.New(w.Name+w.Text))
		}
	case err != nil:
		fail("parameters", "change the parameters or the document", err)
	default:
		checks = append(checks, doctor.Check{Name: "parameters", State: doctor.OK, Text: "each has a value"})
	}
	for key, value := range have {
		if _, ok := given[key]; !ok {
			given[key] = value
		}
	}
	if body, err := tmpl.Request(); err == nil && len(body) > template.MaxInline && deploy.TemplateURL == "" && deploy.TemplateBucket == "" {
		fail("template", "give --template-bucket BUCKET, a bucket in "+c.config.AWS.Region+" that these credentials may write and read",
			&TooLargeError{Stack: c.stack, Region: c.config.AWS.Region, Bytes: len(body), Most: template.MaxInline})
	}
	return tmpl, given, stack, checks
}

// checkImage checks the image that the channel names.
func (c *Cluster) checkImage(ctx context.Context, deploy Deployment) doctor.List {
	const name = "image"
	channel := c.config.Document.Cluster.AWS.Channel
	id, err := c.check(ctx, deploy.AnyMachine)
	publish := fmt.Sprintf("hardtack image publish --channel %s, or hardtack image promote --channel %s IMAGE", channel, channel)
	var checks doctor.List
	fail := func(text, next string) {
		checks = append(checks, doctor.Check{Name: name, State: doctor.Error, Text: text, Next: next})
	}
	var unfit *UnfitError
	var version *ImageVersionError
	var none *NoImageError
	var unknown *UnknownImageError
	if errors.As(err, &none) || errors.As(err, &unknown) {
		fail(err.Error(), publish)
	}
	if errors.As(err, &unfit) {
		for _, p := range unfit.Problems {
			fail(unfit.Image+": "+p, "change the document, or point the channel at another image: "+publish)
		}
	}
	if errors.As(err, &version) {
		fail(version.Error(), "write that version in the document, or point the channel at another image: "+publish)
	}
	switch {
	case len(checks) > 0:
		return checks
	case err != nil:
		return doctor.List{preflight.Unread(name, policyCommand, known(err, "ssm:GetParameter, ec2:DescribeImages and ec2:DescribeInstanceTypes"))}
	}
	return doctor.List{{Name: name, State: doctor.OK, Text: fmt.Sprintf("channel %s names %s, and every group's machines start from it", channel, id)}}
}

// known is an error of reading as pkg/dns/doctor has them.
func known(err error, permission string) error {
	if awserr.KindOf(err) == awserr.Denied {
		return &doctor.Refused{Permission: permission, Err: err}
	}
	return err
}

// planOf is what of the cluster decides which calls are made.
func (c *Cluster) planOf(who preflight.Caller, tmpl *template.Template, parameters map[string]string, deploy Deployment) preflight.Plan {
	d := c.config.Document
	p := preflight.Plan{Partition: "aws", Region: c.config.AWS.Region, Account: who.Account, Stack: c.stack, Groups: c.Groups(), Channel: template.ImageParameter(c.Channel()),
		ZoneID: parameters[template.ParameterZone], Bucket: deploy.TemplateBucket, Boundary: parameters[template.ParameterBoundary] != ""}
	if a, err := arn.Parse(who.ARN); err == nil {
		p.Partition = a.Partition
	}
	if at, err := store.ParseLocation(d.Cluster.Store); err == nil && at.Kind == store.KindSSM {
		p.Store = at.Root
	}
	for _, r := range tmpl.Resources {
		if !slices.Contains(p.Types, r.Type) {
			p.Types = append(p.Types, r.Type)
		}
	}
	slices.Sort(p.Types)
	p.SecretsKey, p.VolumeKey = d.SecretsKey(), d.Cluster.Etcd.Key
	if slices.Contains(p.Types, bucketType) {
		p.Backups = machine.StackBackups(c.name).In(who.Account, c.config.AWS.Region).Bucket
	}
	for _, g := range d.Groups {
		p.Managed, p.Metrics = p.Managed || len(g.AWS.Policies) > 0, p.Metrics || g.AWS.Metrics
	}
	if machine.NeedsCloud(d.Cluster.Addons) {
		p.PodRoles = machine.PodRolePrefix(c.name, c.config.AWS.Region)
	}
	for _, r := range d.Cluster.AWS.PodRoles {
		p.Managed = p.Managed || len(r.Policies) > 0
	}
	return p
}

// decisions has IAM simulate every need for the caller. The principal is empty for a caller whose policies IAM does not simulate.
func (c *Cluster) decisions(ctx context.Context, caller string, needs []preflight.Need) (principal string, out doctor.Known[[]preflight.Decision]) {
	client := iam.NewFromConfig(c.config.AWS)
	if principal = c.principal(ctx, client, caller); principal == "" {
		return "", out
	}
	for _, n := range needs {
		decisions, err := simulate(ctx, client, principal, n)
		if err != nil {
			return principal, doctor.Known[[]preflight.Decision]{Err: known(err, "iam:SimulatePrincipalPolicy")}
		}
		out.Value = append(out.Value, decisions...)
	}
	return principal, out
}

// principal is the user or the role behind a caller. The ARN of a session has no path, and that of its role has it: IAM is asked for it, and
// where that is not allowed, the role is taken to have none.
func (c *Cluster) principal(ctx context.Context, client *iam.Client, caller string) string {
	a, err := arn.Parse(caller)
	if err != nil {
		return ""
	}
	kind, rest, _ := strings.Cut(a.Resource, "/")
	switch {
	case a.Service == "iam" && kind == "user":
		return caller
	case a.Service != "sts" || kind != "assumed-role":
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	if out, err := client.GetRole(ctx, &iam.GetRoleInput{RoleName: &name}); err == nil && out.Role != nil {
		return aws.ToString(out.Role.Arn)
	}
	return "arn:" + a.Partition + ":iam::" + a.AccountID + ":role/" + name
}
