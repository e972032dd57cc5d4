package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	scalingapi "github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

const (
	// endPatience is how long ending all machines may take: the template's drain hook holds each for at most 5 minutes, and
	// stopping a machine takes a few more. What holds minions for their pods is answered at once; where the caller may not do
	// that, its time passes first.
	endPatience = 20 * time.Minute
	// deleteTries is how often the zone is emptied again because the function has written to it meanwhile. emptyTries
	// is how often one removal is repeated because another update conflicted with it.
	deleteTries = 3
	emptyTries  = 5
)

// DeleteOptions are the options of Delete.
type DeleteOptions struct {
	// DryRun reports the resources that Delete would remove, and removes none.
	DryRun bool
}

// Deleted is the result of Delete.
type Deleted struct {
	// Stack is empty if Terraform made the cluster.
	Stack  string `json:"stack"`
	DryRun bool   `json:"dry_run"`
	// Terraform reports whether the rest is Terraform's to destroy. Function is then the stack of the DNS function if it has to be
	// deleted before the records: it would write them again, also into a zone that Terraform is about to delete.
	Terraform bool   `json:"terraform,omitempty"`
	Function  string `json:"function,omitempty"`
	// Found reports whether the stack existed, Done whether it is gone now.
	Found    bool     `json:"found"`
	Done     bool     `json:"done"`
	Machines []string `json:"machines"`
	// Zone is the id of the hosted zone if it is deleted with the stack. Records are the cluster's removed records.
	Zone    string   `json:"zone"`
	Records []string `json:"records"`
	// Stays are the cluster's resources outside the stack, which Delete leaves.
	Stays []Left `json:"stays"`
}

// Delete ends the machines first, since they need their records, then the records, since only an empty zone can be
// deleted, then the stack. It succeeds if there is no stack. It reports resources of the cluster outside the stack. Of what Terraform
// has made it ends the machines and removes the records; Terraform destroys the rest.
func (c *Cluster) Delete(ctx context.Context, o DeleteOptions) (*Deleted, error) {
	made, err := c.Made(ctx)
	out := &Deleted{DryRun: o.DryRun, Found: true, Terraform: c.config.Terraform != nil, Machines: []string{}, Records: []string{}}
	if !out.Terraform {
		out.Stack = c.stack
	}
	switch {
	case errors.Is(err, cloudformation.ErrNoStack):
		out.Found, out.Done = false, true
	case err != nil:
		return nil, err
	default:
		if err := c.deleteMade(ctx, made, out); err != nil {
			return nil, err
		}
	}
	out.Stays, err = c.Left(ctx)
	return out, err
}

// deleteMade deletes what was made, unless it is a dry run.
func (c *Cluster) deleteMade(ctx context.Context, made *Made, out *Deleted) error {
	if err := c.deletable(ctx, made, out); err != nil || out.DryRun {
		return err
	}
	if made.Stack == nil {
		return c.deleteOfTerraform(ctx, made, out)
	}
	if err := c.deleteAll(ctx, made, out); err != nil {
		return err
	}
	out.Done = true
	return nil
}

// deletable fills in the resources to delete, and refuses a deletion that would fail half way.
func (c *Cluster) deletable(ctx context.Context, made *Made, out *Deleted) error {
	if made.Stack != nil && made.Stack.Protected {
		return &cloudformation.ProtectedError{Stack: c.stack}
	}
	if made.Stack.Busy() {
		return &BusyError{Stack: c.stack, Status: made.Stack.Status}
	}
	var err error
	if out.Machines, err = c.machinesOf(made).Instances(ctx); err != nil {
		return err
	}
	if made.Zone == "" {
		return nil // it never came so far
	}
	z, err := c.zone(made.Zone)
	if err != nil {
		return err
	}
	have, err := z.Read(ctx, c.name)
	if err != nil {
		return err
	}
	for _, s := range record.ManagedSets(have, c.name, record.DefaultPolicy()) {
		out.Records = append(out.Records, s.Name+" "+s.Type)
	}
	if !made.OwnsZone {
		return nil
	}
	out.Zone = made.Zone
	return c.noForeignRecords(ctx, out.Zone)
}

// noForeignRecords fails if a zone that is deleted with the stack has records of other clusters.
func (c *Cluster) noForeignRecords(ctx context.Context, id string) error {
	others, err := zone.ForeignNames(ctx, route53.NewFromConfig(c.config.AWS), id, c.name, record.DefaultPolicy())
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("zone %s is this cluster's, and has records of others, with which it cannot be deleted: %s (delete those clusters first, or remove the records)",
			id, strings.Join(others[:min(len(others), 10)], ", "))
	}
	return err
}

func (c *Cluster) deleteAll(ctx context.Context, made *Made, out *Deleted) error {
	if err := c.emptyStack(ctx, made.Stack); err != nil {
		return err
	}
	if err := c.awaitEnd(ctx, made); err != nil {
		return err
	}
	for try := 1; ; try++ {
		if made.Zone != "" {
			if err := c.emptyZone(ctx, made.Zone); err != nil {
				return err
			}
		}
		err := c.stacks.Delete(ctx, made.Stack.ID)
		var failure *cloudformation.Failure
		// The function may have written once more before its groups were gone.
		if errors.As(err, &failure) && failure.Type == cloudformation.TypeZone && out.Zone != "" && try < deleteTries {
			continue
		}
		return err
	}
}

// deleteOfTerraform ends the machines, and removes the records once nobody writes them any more.
func (c *Cluster) deleteOfTerraform(ctx context.Context, made *Made, out *Deleted) error {
	if err := c.machinesOf(made).Empty(ctx); err != nil {
		return err
	}
	if err := c.awaitEnd(ctx, made); err != nil {
		return err
	}
	function, err := c.leftFunction(ctx)
	if err != nil {
		return err
	}
	if len(function) > 0 {
		out.Function = function[0].Name
		return nil
	}
	if err := c.emptyZone(ctx, made.Zone); err != nil {
		return err
	}
	out.Done = true
	return nil
}

// emptyStack empties the stack's groups. Where the stack can no longer be updated, its deletion ends the machines.
func (c *Cluster) emptyStack(ctx context.Context, now *cloudformation.Stack) error {
	if now.Parameters[template.ParameterMachines] != template.MachinesYes || !now.Updatable() {
		return nil
	}
	p := cloudformation.Proposal{Stack: c.stack, Parameters: map[string]string{template.ParameterMachines: template.MachinesNo}}
	for key := range now.Parameters {
		if key != template.ParameterMachines {
			p.Keep = append(p.Keep, key)
		}
	}
	slices.Sort(p.Keep)
	plan, err := c.stacks.Propose(ctx, p)
	if err != nil {
		return err
	}
	_, err = c.stacks.Execute(ctx, plan)
	return err
}

// awaitEnd waits until every machine is gone.
func (c *Cluster) awaitEnd(ctx context.Context, made *Made) error {
	began, patience := c.clock.Now(), endPatience
	for {
		left, err := c.machinesOf(made).Instances(ctx)
		if err != nil || len(left) == 0 {
			return err
		}
		if c.clock.Now().Sub(began) > patience {
			return &NotEndedError{Cluster: c.name, Machines: left}
		}
		if !c.letMinionsEnd(ctx) {
			patience = endPatience + c.longestDrain()
		}
		if err := c.clock.Sleep(ctx, c.config.Poll); err != nil {
			return fmt.Errorf("stopped waiting: the machines of %s end by themselves, and deleting again goes on: %w", c.name, err)
		}
	}
}

// longestDrain is the time of the hook that holds minions for their pods, in the group that has most of it.
func (c *Cluster) longestDrain() (longest time.Duration) {
	for _, g := range c.config.Document.Groups {
		longest = max(longest, g.Drain())
	}
	return longest
}

// letMinionsEnd answers the hook that holds minions for their pods, since these have nowhere to go. The masters would do it,
// and end themselves. It reports whether it could; where the caller may not answer it, the hook's time passes.
func (c *Cluster) letMinionsEnd(ctx context.Context) bool {
	hook := &fleet.Evictions{API: scalingapi.NewFromConfig(c.config.AWS), Cluster: c.name}
	seen, err := hook.Sight(ctx)
	for _, m := range seen.Machines {
		if m.State == string(types.LifecycleStateTerminatingWait) {
			_, failed := hook.Release(ctx, m)
			err = errors.Join(err, failed)
		}
	}
	if err != nil && ctx.Err() == nil {
		c.config.Log.Warn("minions are held for their pods although the cluster ends, until a master or the hook's time lets them go", "error", err)
	}
	return err == nil
}

// emptyZone removes the cluster's records and leaves those of other clusters.
func (c *Cluster) emptyZone(ctx context.Context, id string) error {
	z, err := c.zone(id)
	if err != nil {
		return err
	}
	for range emptyTries {
		have, err := z.Read(ctx, c.name)
		have = record.ManagedSets(have, c.name, record.DefaultPolicy())
		if err != nil || len(have) == 0 {
			return err
		}
		for _, part := range record.Removal(have, z.Limits()) {
			if err = z.CompareAndSwap(ctx, c.name, part, nil); err != nil {
				break
			}
		}
		if err != nil && !errors.Is(err, reconcile.ErrConflict) {
			return fmt.Errorf("removing the records of %s: %w", c.name, err)
		}
	}
	return &RewrittenError{Cluster: c.name, Zone: id}
}
