package lab

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// richCluster uses rare features of the template: a template that is too large for a request, members, a load
// balancer, a key, another channel and groups without machines.
func richCluster() string {
	noise := make([]byte, 11700)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(noise) // never fails
	return fmt.Sprintf(`apiVersion: hardtack.dev/v1
kind: Cluster
name: rich
aws:
  channel: edge
  loadBalancer: internal
  key: arn:aws:kms:eu-west-1:123456789012:key/0
groups:
- {name: masters, roles: [masters], aws: {instanceType: m7g.large}}
- {name: etcd, roles: [etcd], members: [a, b, c]}
- {name: minions, roles: [minions], size: 0}
- {name: slow, roles: [minions], size: 0}
- {name: refused, roles: [minions], size: 0}
fileAssets:
- {path: /etc/hardtack/noise, base64: %s, roles: [minions]}
- path: /etc/systemd/system/hardtack-ready.service.d/stall.conf
  roles: [minions]
  content: |
    [Service]
    ExecStart=
    ExecStart=/usr/lib/hardtack/bin/hardtack-agent ready --stall 30s
`, base64.StdEncoding.EncodeToString(noise))
}

// TestStackOfLab starts a lab from a document that uses much of the template, and checks the account: the groups'
// hooks have the lab's timeout and are the template's otherwise.
func TestStackOfLab(t *testing.T) {
	t.Parallel()
	plan, err := planOf(richCluster())
	if err != nil {
		t.Fatal(err)
	}
	_, c := up(t, plan)
	s := until(t, c, "masters and members serve", func(s Status) bool {
		return s.Ready && len(s.Machines) == 4
	})
	if s.Groups[1].Name != "etcd-a" || s.Groups[4].Desired != 0 {
		t.Errorf("groups %+v", s.Groups)
	}
	for _, size := range []int{1, 0} { // the template has no room for a machine, and then keeps one
		if err := c.Scale(t.Context(), "slow", size); err != nil {
			t.Fatal(err)
		}
		until(t, c, fmt.Sprintf("a group of none has %d machines", size), func(s Status) bool {
			return s.Groups[len(s.Groups)-2].InService == size
		})
	}
	at, err := c.AWS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := autoscaling.NewFromConfig(ownerOf(at)).DescribeLifecycleHooks(t.Context(), &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: aws.String("rich-masters")})
	if err != nil {
		t.Fatal(err)
	}
	var hooks []string
	for _, h := range out.LifecycleHooks {
		hooks = append(hooks, fmt.Sprint(*h.LifecycleHookName, " ", *h.HeartbeatTimeout, " ", *h.DefaultResult))
	}
	slices.Sort(hooks)
	if diff := cmp.Diff([]string{"hardtack-drain 300 CONTINUE", "hardtack-ready 7200 ABANDON"}, hooks); diff != "" {
		t.Errorf("hooks (-want +got):\n%s", diff)
	}
	queues := sqs.NewFromConfig(ownerOf(at))
	queue, err := queues.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String(functionName)})
	if err != nil {
		t.Fatal(err)
	}
	has, err := queues.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: queue.QueueUrl, AttributeNames: []sqstypes.QueueAttributeName{"All"}})
	if err != nil || has.Attributes["VisibilityTimeout"] != "362" {
		t.Errorf("the queue has %v, %v", has, err)
	}
}

// TestMatches has a rule's pattern take the events of its groups, and no others.
func TestMatches(t *testing.T) {
	t.Parallel()
	pattern := map[string]any{"source": []any{"aws.autoscaling"}, "detail": map[string]any{"AutoScalingGroupName": []any{"demo-a", "demo-b"}}}
	event := func(source, detail string) awsfake.Event {
		return awsfake.Event{Source: source, Detail: []byte(detail)}
	}
	for name, tt := range map[string]struct {
		event awsfake.Event
		want  bool
	}{
		"a group of its own":    {event("aws.autoscaling", `{"AutoScalingGroupName": "demo-b", "more": 1}`), true},
		"another group":         {event("aws.autoscaling", `{"AutoScalingGroupName": "else"}`), false},
		"no group":              {event("aws.autoscaling", `{}`), false},
		"a detail that is text": {event("aws.autoscaling", `"demo-a"`), false},
		"another source":        {event("aws.ec2", `{"AutoScalingGroupName": "demo-a"}`), false},
	} {
		if got := matchesEvent(pattern, tt.event); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
