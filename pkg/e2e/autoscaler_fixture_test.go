package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// scaledDocument is a cluster whose minions scale, those of one group from none; the plane's API server signs its tokens.
const scaledDocument = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
serviceAccounts: {issuer: "https://kubernetes.default.svc"}
addons: [cluster-autoscaler]
groups:
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions], size: 1, aws: {max: 3}}
- {name: fixed, roles: [minions], size: 1}
- {name: web, roles: [minions], size: 0, node: {labels: {team: web}, taints: ["dedicated=web:NoSchedule"]}, aws: {max: 1}}
`

// The other groups of scaledDocument whose machines are nodes here.
const (
	fixedGroup = "demo-fixed"
	fromNone   = "demo-web"
)

// halfTagged are groups with one of the two tags by which the program finds its groups: another cluster's in the same account, and one
// of this cluster that somebody has tagged by hand.
var halfTagged = map[string]map[string]string{
	"other-minions": {role.TagCluster: "other", "k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/other": "owned"},
	"demo-byhand":   {role.TagCluster: "demo", "k8s.io/cluster-autoscaler/demo": "owned"},
}

// issuerOf reads the documents of any issuer from the plane's API server, as STS reads them at their published place.
type issuerOf struct{ *plane }

func (i issuerOf) RoundTrip(r *http.Request) (*http.Response, error) {
	at, err := url.Parse(i.url)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = at.Host, at.Host
	r.Header.Set("Authorization", "Bearer "+planeAdmin)
	return (&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}).RoundTrip(r)
}

// scaled is a plane, and the account with the stack of scaledDocument, whose instances are its nodes.
type scaled struct {
	*leaving
	// url is AWS's, and audit the file with what the add-on has asked the API server for.
	url, audit string
	// full reports whether EC2 has no machine for the group that scales.
	full atomic.Bool
	// allowed are the actions that the add-on's role allows.
	allowed []string
	// roles are what the manifest allows it in the cluster.
	roles []map[string]any
	// program is cluster-autoscaler as it runs.
	program *exec.Cmd

	mu sync.Mutex
	// ends are the nodes whose machines were ending, and how each was found.
	ends map[string]string
}

func newScaled(t *testing.T) *scaled {
	t.Helper()
	audit := filepath.Join(t.TempDir(), "audit.log")
	s := &scaled{audit: audit, ends: map[string]string{}, leaving: &leaving{T: t, plane: newPlane(t, auditOf(t, audit)...), machines: map[string]string{}, logs: map[string]*bytes.Buffer{}}}
	s.account = awsfake.New(awsfake.Options{Web: &http.Client{Transport: issuerOf{s.plane}}, AutoScaling: awsfake.AutoScalingOptions{Refuse: s.refuse}})
	s.account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000a", VPC: "vpc-00000000000000001", Zone: "us-west-2a"})
	operator := s.account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(s.account.Handler())
	t.Cleanup(server.Close)
	s.url = server.URL
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), Credentials: credentials.NewStaticCredentialsProvider(operator.AccessKey, operator.Secret, "")}
	s.api = autoscaling.NewFromConfig(conf)
	s.stack(conf)
	for name, tags := range halfTagged {
		if err := s.account.AutoScaling().Create(awsfake.Group{Name: name, Max: 3, Desired: 1, Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	s.start(t, "kube-scheduler", "--kubeconfig="+filepath.Join(s.dir, "admin.kubeconfig"), "--leader-elect=false", "--secure-port=0")
	s.machinesRun()
	return s
}

// refuse is EC2's answer to a launch while it is full.
func (s *scaled) refuse(action, group string) error {
	if action != "launch" || group != evictionGroup || !s.full.Load() {
		return nil
	}
	return &awsfake.Error{Status: 500, Code: "InsufficientInstanceCapacity", Message: "We currently do not have sufficient m7i.large capacity in the Availability Zone you requested (us-west-2a)."}
}

// stack has CloudFormation make what the document says, with machines.
func (s *scaled) stack(conf aws.Config) {
	s.Helper()
	rendered, err := template.Render(completed(s.T, scaledDocument), nil)
	if err != nil {
		s.Fatal(err)
	}
	s.allowed = allowedActions(s.T, rendered.Resources[template.PodRoleOutput("addon-"+machine.ClusterAutoscaler)])
	body, err := rendered.Request()
	if err != nil {
		s.Fatal(err)
	}
	api, name, parameters := cloudformation.NewFromConfig(conf), aws.String("hardtack-demo"), []types.Parameter{}
	for key, value := range map[string]string{
		template.ParameterVPC: "vpc-00000000000000001", template.ParameterSubnets: "subnet-0000000000000000a", template.ParameterMachines: template.MachinesYes, template.ParameterMembers: "subnet-0000000000000000a", template.ParameterZones: "us-west-2a",
	} {
		parameters = append(parameters, types.Parameter{ParameterKey: aws.String(key), ParameterValue: aws.String(value)})
	}
	if _, err := s.account.SSM().Put(awsfake.Parameter{Name: template.ImageParameter("stable"), Value: "ami-0000000000000000a"}, true); err != nil {
		s.Fatal(err)
	}
	set := aws.String("first")
	if _, err := api.CreateChangeSet(s.Context(), &cloudformation.CreateChangeSetInput{StackName: name, ChangeSetName: set, ChangeSetType: types.ChangeSetTypeCreate, TemplateBody: aws.String(string(body)),
		Parameters: parameters, Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam}}); err != nil {
		s.Fatal(err)
	}
	s.until(time.Minute, "the stack is planned", func() bool {
		s.account.Tick()
		out, err := api.DescribeChangeSet(s.Context(), &cloudformation.DescribeChangeSetInput{StackName: name, ChangeSetName: set})
		if err != nil || out.Status == types.ChangeSetStatusFailed {
			s.Fatalf("planning the stack: %v, %s", err, aws.ToString(out.StatusReason))
		}
		return out.Status == types.ChangeSetStatusCreateComplete
	})
	if _, err := api.ExecuteChangeSet(s.Context(), &cloudformation.ExecuteChangeSetInput{StackName: name, ChangeSetName: set}); err != nil {
		s.Fatal(err)
	}
	s.until(time.Minute, "the stack is made", func() bool {
		s.account.Tick()
		out, err := api.DescribeStacks(s.Context(), &cloudformation.DescribeStacksInput{StackName: name})
		if err != nil {
			s.Fatal(err)
		}
		if status := out.Stacks[0].StackStatus; status != types.StackStatusCreateComplete && status != types.StackStatusCreateInProgress {
			s.Fatalf("the stack is %s: %s", status, aws.ToString(out.Stacks[0].StackStatusReason))
		}
		return out.Stacks[0].StackStatus == types.StackStatusCreateComplete
	})
}

// machinesRun does what the machines of the minions' groups and their kubelets do, what the DNS function does about the end of one, and
// what hardtack-controller does about the node of one that is gone.
func (s *scaled) machinesRun() {
	ctx, stop := context.WithCancel(s.Context())
	done := make(chan struct{})
	s.Cleanup(func() { stop(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			s.account.Tick()
			if err := s.nodesFollow(ctx); err != nil && ctx.Err() == nil {
				s.Logf("pretending: %v", err)
			}
			pods, err := s.objects.Resource(podsOfCluster).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for _, p := range pods.Items {
				if err := s.kubelet(ctx, p, nil); err != nil && ctx.Err() == nil {
					s.Logf("pretending: %v", err)
				}
			}
		}
	}()
}

// nodesFollow registers each machine that has come, and forgets each that is gone.
func (s *scaled) nodesFollow(ctx context.Context) error {
	nodes := s.objects.Resource(nodesOfCluster)
	have, err := nodes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	known := map[string]unstructured.Unstructured{}
	for _, n := range have.Items {
		known[n.GetName()] = n
	}
	for _, group := range []string{evictionGroup, fixedGroup, fromNone} {
		for _, i := range s.account.AutoScaling().Instances(group) {
			name := nodeOf(i.ID)
			if node, is := known[name]; is && strings.HasPrefix(i.State, awsfake.StateTerminating) {
				if err := s.end(ctx, node); err != nil {
					return err
				}
			}
			for hook := range i.Tokens {
				if hook == machine.DefaultLaunchHook || hook == role.DrainHook {
					if err := s.account.AutoScaling().Complete(group, hook, i.ID, awsfake.Continue); err != nil {
						return err
					}
				}
			}
			if _, is := known[name]; !is && i.State == awsfake.StateInService {
				if err := s.register(ctx, group, i.ID); err != nil {
					return err
				}
			}
			delete(known, name)
		}
	}
	for name := range known {
		if err := nodes.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func nodeOf(id string) string { return "node-" + id }

// end notes how the node of a machine is found when the machine begins to end: what the autoscaler has done to it, and what it has left.
func (s *scaled) end(ctx context.Context, node unstructured.Unstructured) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := node.GetName()
	if _, seen := s.ends[name]; seen {
		return nil
	}
	pods, err := s.objects.Resource(podsOfCluster).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	cordoned, _, _ := unstructured.NestedBool(node.Object, "spec", "unschedulable")
	taints, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	marked := slices.ContainsFunc(taints, func(taint any) bool {
		of, _ := taint.(map[string]any)
		return of["key"] == "ToBeDeletedByClusterAutoscaler" && of["effect"] == "NoSchedule"
	})
	s.ends[name] = fmt.Sprintf("cordoned: %v, marked: %v, pods: %d", cordoned, marked, len(pods.Items))
	return nil
}

func (s *scaled) ended() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ends)
}

// register makes the node of an m7i.large, with what its group's kubelets register with.
func (s *scaled) register(ctx context.Context, group, id string) error {
	nodes, now, name := s.objects.Resource(nodesOfCluster), time.Now().UTC().Format(time.RFC3339), nodeOf(id)
	labels := map[string]any{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		"topology.kubernetes.io/zone": "us-west-2a", "topology.kubernetes.io/region": "us-west-2", "node.kubernetes.io/instance-type": "m7i.large"}
	taints := []any{}
	if group == fromNone {
		labels["team"] = "web"
		taints = append(taints, map[string]any{"key": "dedicated", "value": "web", "effect": "NoSchedule"})
	}
	made, err := nodes.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": labels},
		"spec":     map[string]any{"providerID": "aws:///us-west-2a/" + id}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	size := map[string]any{"cpu": "2", "memory": "7600Mi", "pods": "110", "ephemeral-storage": "18Gi"}
	// Whatever takes the API server's first taint away, it is not here.
	if err := unstructured.SetNestedSlice(made.Object, taints, "spec", "taints"); err != nil {
		return err
	}
	if made, err = nodes.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	made.Object["status"] = map[string]any{"capacity": size, "allocatable": size, "conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady",
		"message": "pretended", "lastHeartbeatTime": now, "lastTransitionTime": now}}}
	_, err = nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}
