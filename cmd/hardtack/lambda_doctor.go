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

	"github.com/hardtack/packer-plugin-hardtack/pkg/deployment"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dnssync"
	"github.com/hardtack/packer-plugin-hardtack/pkg/doctor"
	"github.com/hardtack/packer-plugin-hardtack/pkg/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/function"
	"github.com/hardtack/packer-plugin-hardtack/pkg/record"
)

func lambdaDoctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "look at what is deployed: function, queue, rules, permissions, alarms, the last reconcile, the records; changes nothing",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "stack", Usage: "the `NAME` of the stack that sam deploy has made"},
			&cli.StringFlag{Name: "function", Usage: "the function's `NAME`, where it is of no stack"},
			&cli.StringFlag{Name: "zip", Usage: "the `FILE` that should be deployed, as make lambda builds it"},
			&cli.BoolFlag{Name: "policy", Usage: "print the IAM policy that this command needs, for the stack where one is named, and do nothing"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON"},
			&cli.DurationFlag{Name: "timeout", Value: 2 * time.Minute, Usage: "the `TIME` that it may take; a service that does not answer has a third of what is left"},
		},
		Action: func(c *cli.Context) error {
			if err := noArguments(c); err != nil {
				return err
			}
			target := deployment.Target{Stack: c.String("stack"), Function: c.String("function")}
			if c.Bool("policy") {
				return printPolicy(c, target)
			}
			if target == (deployment.Target{}) {
				return usagef("--stack or --function is needed: what is deployed (see %s --help)", name(c))
			}
			ctx, cancel := dnssyncContext(c)
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
	_, err = fmt.Fprintf(c.App.Writer, "%s\n", text)
	return err
}

// lambdaChecks reads what is deployed and the records, and judges both.
func lambdaChecks(ctx context.Context, c *cli.Context, target deployment.Target) (doctor.List, error) {
	policy := record.DefaultPolicy()
	wanted := doctor.Wanted{Now: time.Now(), Drain: policy.TTL + dnssync.DefaultSettle, TagCluster: fleet.TagCluster, TagRole: fleet.TagRole}
	if file := c.String("zip"); file != "" {
		zip, err := deployment.ReadZip(file)
		if err != nil {
			return nil, err
		}
		wanted.Zip = &zip
	}
	conf, err := awsConfig(ctx)
	if err != nil {
		return nil, err
	}
	facts := deployment.New(conf, time.Now, settingsOf).Read(ctx, target)
	var more doctor.List
	if facts.Settings.Err == nil {
		more = lambdaRecords(ctx, c, conf, facts)
	}
	if err := c.Err(); err != nil { // Ctrl-C; where the time was too short, the findings say what for
		return nil, fmt.Errorf("looking at what is deployed: %w", err)
	}
	return append(doctor.Judge(facts, wanted), more...), nil
}

// settingsOf reads a function's environment as the function does; what Lambda itself sets is taken to be there.
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

// lambdaRecords plans each of the function's clusters, as dns plan does, for the groups that the function may read;
// and looks at the zone that they share.
func lambdaRecords(ctx context.Context, c *cli.Context, conf aws.Config, facts doctor.Facts) (more doctor.List) {
	settings, policy := facts.Settings.Value, record.DefaultPolicy()
	policy.Suffix = settings.Suffix
	api, scaling := route53.NewFromConfig(conf), autoscaling.NewFromConfig(conf)
	for i, cluster := range settings.Clusters {
		t := &dnsTarget{cluster: cluster.Name, policy: policy}
		t.fleet = &fleet.AWS{Scaling: scaling, Machines: ec2.NewFromConfig(conf), Allowed: settings.AllGroups()}
		if err := t.keepIn(api, settings.Zone); err != nil {
			facts.Records[cluster.Name] = doctor.Known[doctor.Records]{Err: err}
			continue
		}
		if i == 0 {
			more = append(more, t.checkMinimum(ctx))
		}
		records, err := t.planned(ctx, c)
		facts.Records[cluster.Name] = doctor.Known[doctor.Records]{Value: records, Err: deployment.Explain(err)}
	}
	return more
}

func (t *dnsTarget) checkMinimum(ctx context.Context) check {
	d, err := t.negative(ctx)
	if err != nil {
		return doctor.Unread("zone.minimum", deployment.Explain(err))
	}
	return negativeCheck("zone.minimum", d, "hardtack dns zone prepare --route53 --zone-id "+t.zoneID+" --cluster "+t.cluster)
}

// planned is what of the cluster's records is as it should be.
func (t *dnsTarget) planned(ctx context.Context, c *cli.Context) (doctor.Records, error) {
	s, err := t.syncer(c)
	if err != nil {
		return doctor.Records{}, err
	}
	plan, err := s.Plan(ctx, t.cluster)
	if err != nil {
		return doctor.Records{}, err
	}
	out := doctor.Records{Sets: len(plan.Have), Differ: differ(plan)}
	if g, ok := record.Generation(plan.Have, t.cluster); ok {
		out.Written, err = dnssync.GenerationTime(g)
		if err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
	}
	for _, p := range plan.Report.Problems {
		out.Problems = append(out.Problems, p.String())
	}
	return out, nil
}
