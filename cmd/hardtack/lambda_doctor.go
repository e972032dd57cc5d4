package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/lambda"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/check"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/deployment"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/shipped"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

func lambdaDoctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "check the deployed function, queue, rules, permissions, alarms, last reconcile and records, without changing anything",
		Flags: append(awsFlags(),
			&cli.StringFlag{Name: "stack", Usage: "the `NAME` of the stack that sam deploy created"},
			&cli.StringFlag{Name: "function", Usage: "the function's `NAME`, if it belongs to no stack"},
			&cli.StringFlag{Name: "zip", Usage: "compare with the `FILE` that should be deployed, as built by make lambda"},
			&cli.BoolFlag{Name: "policy", Usage: "only print the IAM policy that this command needs"},
			timeoutFlag(2*time.Minute),
		),
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			target := deployment.Target{Stack: c.String("stack"), Function: c.String("function")}
			if c.Bool("policy") {
				return printPolicy(c, target)
			}
			if target == (deployment.Target{}) {
				return usagef("--stack or --function is needed (see %s --help)", name(c))
			}
			ctx, cancel := timeoutContext(c)
			defer cancel()
			checks, err := lambdaChecks(ctx, c, target)
			if err != nil {
				return err
			}
			if n := checks.Count(doctor.Warning); n > 0 {
				logger(c).Warn("some checks are warnings, or could not be made", "warnings", n, "of", len(checks))
			}
			return report(c, checks)
		},
	}
}

func printPolicy(c *cli.Context, target deployment.Target) error {
	text, err := deployment.Permissions(target)
	if err != nil {
		return err
	}
	return printDocument(c, append(text, '\n'))
}

// lambdaChecks reads the deployment and the records, and checks both.
func lambdaChecks(ctx context.Context, c *cli.Context, target deployment.Target) (doctor.List, error) {
	policy := record.DefaultPolicy()
	wanted := doctor.Wanted{Now: time.Now(), Drain: policy.TTL + reconcile.DefaultPropagation, TagCluster: role.TagCluster, TagRole: role.TagRole}
	if file := c.String("zip"); file != "" {
		zip, err := deployment.ReadZip(file)
		if err != nil {
			return nil, err
		}
		wanted.Zip = &zip
	}
	conf, err := loadAWS(ctx, c)
	if err != nil {
		return nil, err
	}
	template, err := shipped.Parse(lambda.Template)
	if err != nil {
		return nil, err
	}
	facts := deployment.New(conf, time.Now, settingsOf, template).Read(ctx, target)
	if wanted.Shipped, err = doctor.Expect(template, facts); err != nil {
		return nil, err
	}
	var more doctor.List
	if facts.Settings.Err == nil {
		more = lambdaRecords(ctx, c, conf, facts)
	}
	if err := c.Err(); err != nil { // Ctrl-C; a timeout is reported by the checks that it cut short
		return nil, fmt.Errorf("reading the deployment: %w", err)
	}
	return append(doctor.Judge(facts, wanted), more...), nil
}

// settingsOf parses a function's environment as the function does; Lambda's own variables are assumed.
func settingsOf(environment map[string]string) (doctor.Settings, error) {
	own := map[string]string{function.EnvRegion: "set", function.EnvKey: "set", function.EnvSecret: "set"}
	s, err := function.Read(func(key string) string {
		if v, ok := environment[key]; ok {
			return v
		}
		return own[key]
	})
	out := doctor.Settings{Zone: s.Zone, Suffix: s.Suffix, Hook: s.Hook, Queue: s.Queue}
	for _, cluster := range s.Scope.Clusters() {
		out.Clusters = append(out.Clusters, doctor.Cluster{Name: cluster, Groups: s.Scope.Groups(cluster)})
	}
	return out, err
}

// lambdaRecords plans each of the function's clusters, as dns plan does, for the groups that the function may read,
// and checks the zone that they share.
func lambdaRecords(ctx context.Context, c *cli.Context, conf aws.Config, facts doctor.Facts) (more doctor.List) {
	settings, policy := facts.Settings.Value, record.DefaultPolicy()
	policy.Suffix = settings.Suffix
	api, scaling := route53.NewFromConfig(conf), autoscaling.NewFromConfig(conf)
	for i, cluster := range settings.Clusters {
		t := &dnsTarget{cluster: cluster.Name, policy: policy}
		t.fleet = &fleet.AWS{Scaling: scaling, Machines: ec2.NewFromConfig(conf), Allowed: settings.Groups}
		z, err := zone.NewRoute53(api, settings.Zone, policy)
		if err != nil {
			facts.Records[cluster.Name] = doctor.Known[doctor.Records]{Err: err}
			continue
		}
		if i == 0 {
			more = append(more, checkMinimum(ctx, z, cluster.Name))
		}
		t.zone = z
		records, err := t.checkRecords(ctx, c)
		facts.Records[cluster.Name] = doctor.Known[doctor.Records]{Value: records, Err: deployment.Explain(err)}
	}
	return more
}

func checkMinimum(ctx context.Context, z *zone.Route53, cluster string) doctor.Check {
	const name = "zone.minimum"
	d, err := z.NegativeTTL(ctx)
	if err != nil {
		return doctor.Unread(name, deployment.Explain(err))
	}
	ch := check.NegativeTTL(name, d)
	if ch.State != doctor.OK {
		ch.Next = lowersMinimum("hardtack dns zone prepare --route53 --zone-id " + z.ID() + " --cluster " + cluster)
	}
	return ch
}

// checkRecords compares the cluster's records with the fleet.
func (t *dnsTarget) checkRecords(ctx context.Context, c *cli.Context) (doctor.Records, error) {
	s, err := t.syncer(c)
	if err != nil {
		return doctor.Records{}, err
	}
	plan, err := s.Plan(ctx, t.cluster)
	if err != nil {
		return doctor.Records{}, err
	}
	return check.Records(plan, t.cluster), nil
}
