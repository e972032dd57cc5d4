package template_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// held has a group of machines that its hooks hold, with the stack's policies.
func held(t *testing.T, documentName, group string) (testAccount, []string) {
	t.Helper()
	a := account(t, deployed(t, documentName))
	scaling := a.AutoScaling()
	for hook, transition := range map[string]string{"hardtack-ready": "LAUNCHING", role.EvictionHook: "TERMINATING", role.DrainHook: "TERMINATING"} {
		err := scaling.PutHook(group, awsfake.Hook{Name: hook, Transition: "autoscaling:EC2_INSTANCE_" + transition, Heartbeat: 900 * time.Second, Default: awsfake.Continue})
		assert.NilError(t, err)
	}
	assert.NilError(t, scaling.SetDesired(group, 3))
	a.Tick()
	var launched []string
	for _, i := range scaling.Instances(group) {
		if i.State == awsfake.StatePendingWait {
			launched = append(launched, i.ID)
		}
	}
	assert.Assert(t, len(launched) >= 2, "%+v", scaling.Instances(group))
	return a, launched
}

// asMachine returns AutoScaling's client with a machine's own credentials.
func (a testAccount) asMachine(t *testing.T, group, id string) *autoscaling.Client {
	t.Helper()
	c, err := a.Issue(group, id, time.Hour)
	assert.NilError(t, err)
	return autoscaling.New(autoscaling.Options{Region: region, BaseEndpoint: &a.url, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil),
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)})
}

func stateOf(a testAccount, group, id string) string {
	for _, i := range a.AutoScaling().Instances(group) {
		if i.ID == id {
			return i.State
		}
	}
	return "gone"
}

// TestSiblings has a stolen minion. With its role's credentials it tries to end its siblings' launches and its own, to put them
// into service before they work, to hold them for ever, and to cut short what holds them at their end. Nothing is its to answer,
// and a master answers for it.
func TestSiblings(t *testing.T) {
	const group = "demo-minions"
	a, launched := held(t, "three=yes", group)
	thief, sibling := launched[0], launched[1]
	api := a.asMachine(t, group, thief)
	attack := func() {
		for _, victim := range []string{sibling, thief, "i-0123456789abcdef0"} {
			for _, of := range []string{group, "demo-masters", "demo-etcd-a"} {
				for _, hook := range []string{"hardtack-ready", role.EvictionHook, role.DrainHook} {
					for _, result := range []string{"ABANDON", "CONTINUE"} {
						_, err := api.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
							AutoScalingGroupName: aws.String(of), LifecycleHookName: aws.String(hook), InstanceId: aws.String(victim), LifecycleActionResult: aws.String(result)})
						assert.Assert(t, refused(t, err), "%s of %s in %s: %v", result, hook, of, err)
					}
					_, err := api.RecordLifecycleActionHeartbeat(t.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
						AutoScalingGroupName: aws.String(of), LifecycleHookName: aws.String(hook), InstanceId: aws.String(victim)})
					assert.Assert(t, refused(t, err), "a heartbeat of %s in %s: %v", hook, of, err)
				}
			}
		}
	}
	attack()
	assert.Equal(t, stateOf(a, group, sibling), awsfake.StatePendingWait)
	assert.Equal(t, stateOf(a, group, thief), awsfake.StatePendingWait)

	master := a.asMachine(t, "demo-masters", "i-0fedcba9876543210")
	_, err := master.RecordLifecycleActionHeartbeat(t.Context(), &autoscaling.RecordLifecycleActionHeartbeatInput{
		AutoScalingGroupName: aws.String(group), LifecycleHookName: aws.String("hardtack-ready"), InstanceId: &sibling})
	assert.NilError(t, err)
	_, err = master.CompleteLifecycleAction(t.Context(), &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName: aws.String(group), LifecycleHookName: aws.String("hardtack-ready"), InstanceId: &sibling, LifecycleActionResult: aws.String("CONTINUE")})
	assert.NilError(t, err)
	a.Tick()
	assert.Equal(t, stateOf(a, group, sibling), awsfake.StateInService)

	assert.NilError(t, a.AutoScaling().Terminate(sibling, false))
	a.Tick()
	assert.Equal(t, stateOf(a, group, sibling), "Terminating:Wait")
	attack()
	assert.Equal(t, stateOf(a, group, sibling), "Terminating:Wait")
}

// TestWhoLaunches has every group of the documents: either its machines have the right to its hooks, or masters have it.
func TestWhoLaunches(t *testing.T) {
	names := append(slices.Clone(documents), "apart")
	for _, name := range names {
		c := complete(t, "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\ngroups: [{name: minions, roles: [minions]}]\n")
		if name != "apart" {
			c = document(t, name)
		}
		rights := map[string][]string{} // the groups whose hooks each group's role answers
		for _, g := range c.Groups {
			rights[g.Name] = answers(t, c, g)
		}
		for _, g := range c.Groups {
			own := slices.Contains(rights[g.Name], g.Name)
			masters := 0
			for _, m := range c.Groups {
				if m.Roles.Has(role.Masters) && m.Name != g.Name {
					masters++
					assert.Equal(t, slices.Contains(rights[m.Name], g.Name), g.Roles.Has(role.Minions), "%s: %s answers for %s", name, m.Name, g.Name)
				}
			}
			assert.Equal(t, own, !g.Roles.LaunchedByMasters() || masters == 0, "%s: %s answers for itself", name, g.Name)
		}
	}
}

// answers returns the names of the groups whose hooks a group's machines may answer.
func answers(t *testing.T, c *spec.Complete, g spec.Group) (names []string) {
	t.Helper()
	var r struct {
		Policies []struct {
			PolicyDocument struct {
				Statement []struct{ Action, Resource any }
			}
		}
	}
	assert.NilError(t, json.Unmarshal([]byte(flat(render(t, c).Resources["Role"+groupID(g.Name)].Properties)), &r))
	for _, s := range r.Policies[0].PolicyDocument.Statement {
		if !strings.Contains(flat(s.Action), finish) {
			continue
		}
		for _, other := range c.Groups {
			if strings.Contains(flat(s.Resource), "autoScalingGroupName/"+c.AutoScaling(other)+`"`) {
				names = append(names, other.Name)
			}
		}
	}
	return names
}
