package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// autoscalerVariable names the program cluster-autoscaler, as its image has it: crane export IMAGE - | tar x cluster-autoscaler.
const autoscalerVariable = "HARDTACK_CLUSTER_AUTOSCALER"

// scaledDocument is a cluster whose minions scale; the plane's API server signs its tokens.
const scaledDocument = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
serviceAccounts: {issuer: "https://kubernetes.default.svc"}
addons: [cluster-autoscaler]
groups:
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions], size: 1, aws: {max: 3}}
- {name: fixed, roles: [minions], size: 1}
`

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
	// url is AWS's.
	url string
}

func newScaled(t *testing.T) *scaled {
	t.Helper()
	s := &scaled{leaving: &leaving{T: t, plane: newPlane(t), machines: map[string]string{}, logs: map[string]*bytes.Buffer{}}}
	s.account = awsfake.New(awsfake.Options{Web: &http.Client{Transport: issuerOf{s.plane}}})
	s.account.EC2().AddSubnet(awsfake.Subnet{ID: "subnet-0000000000000000a", VPC: "vpc-00000000000000001", Zone: "us-west-2a"})
	operator := s.account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(s.account.Handler())
	t.Cleanup(server.Close)
	s.url = server.URL
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, HTTPClient: awshttp.Client(nil), Credentials: credentials.NewStaticCredentialsProvider(operator.AccessKey, operator.Secret, "")}
	s.api = autoscaling.NewFromConfig(conf)
	s.stack(conf)
	s.start(t, "kube-scheduler", "--kubeconfig="+filepath.Join(s.dir, "admin.kubeconfig"), "--leader-elect=false", "--secure-port=0")
	s.machinesRun()
	return s
}

// stack has CloudFormation make what the document says, with machines.
func (s *scaled) stack(conf aws.Config) {
	s.Helper()
	rendered, err := template.Render(completed(s.T, scaledDocument), nil)
	if err != nil {
		s.Fatal(err)
	}
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
	known := map[string]bool{}
	for _, n := range have.Items {
		known[n.GetName()] = true
	}
	for _, group := range []string{evictionGroup, "demo-fixed"} {
		for _, i := range s.account.AutoScaling().Instances(group) {
			name := nodeOf(i.ID)
			for hook := range i.Tokens {
				if hook == machine.DefaultLaunchHook || hook == role.DrainHook {
					if err := s.account.AutoScaling().Complete(group, hook, i.ID, awsfake.Continue); err != nil {
						return err
					}
				}
			}
			if !known[name] && i.State == awsfake.StateInService {
				if err := s.register(ctx, name, i.ID); err != nil {
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

// register makes the node of an m7i.large.
func (s *scaled) register(ctx context.Context, name, id string) error {
	nodes, now := s.objects.Resource(nodesOfCluster), time.Now().UTC().Format(time.RFC3339)
	made, err := nodes.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
			"topology.kubernetes.io/zone": "us-west-2a", "topology.kubernetes.io/region": "us-west-2", "node.kubernetes.io/instance-type": "m7i.large"}},
		"spec": map[string]any{"providerID": "aws:///us-west-2a/" + id}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	size := map[string]any{"cpu": "2", "memory": "7600Mi", "pods": "110", "ephemeral-storage": "18Gi"}
	// Whatever takes the API server's first taint away, it is not here.
	unstructured.RemoveNestedField(made.Object, "spec", "taints")
	if made, err = nodes.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	made.Object["status"] = map[string]any{"capacity": size, "allocatable": size, "conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady",
		"message": "pretended", "lastHeartbeatTime": now, "lastTransitionTime": now}}}
	_, err = nodes.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// autoscaler starts the program as the manifest's pod would: with its arguments and variables, its rights in the cluster, and the role
// that its token is worth. Only its times are shorter.
func (s *scaled) autoscaler(program string) interface{ String() string } {
	s.Helper()
	dir, err := fs.Sub(images.FS, "rootfs"+addons.Dir)
	if err != nil {
		s.Fatal(err)
	}
	values := map[string]string{"CLUSTER_NAME": "demo", "AWS_REGION": "us-west-2", "AWS_ROLE_PREFIX": "arn:aws:iam::123456789012:role/" + machine.PodRolePrefix("demo", "us-west-2"), machine.ImageVariable("cluster-autoscaler"): "x"}
	client, err := kube.New(s.config(planeAdmin))
	if err != nil {
		s.Fatal(err)
	}
	only, err := fs.Sub(dir, addons.Optional)
	if err != nil {
		s.Fatal(err)
	}
	objects, err := addons.Load(values, nil, onlyFile{only, machine.ClusterAutoscaler + ".yaml"})
	if err != nil {
		s.Fatal(err)
	}
	var container map[string]any
	for _, o := range objects {
		if strings.HasPrefix(o.String(), "Deployment/") {
			list, _, _ := unstructured.NestedSlice(normal(s.T, o.Value), "spec", "template", "spec", "containers")
			container, _ = list[0].(map[string]any)
			continue // its pods would wait for a node too
		}
		if err := client.Apply(s.Context(), o.Value); err != nil {
			s.Fatal(err)
		}
	}
	token := func(audience ...string) string {
		return strings.TrimSpace(s.kubectl(s.T, "", append([]string{"create", "token", "cluster-autoscaler", "--namespace=kube-system"}, audience...)...))
	}
	s.write(s.T, "autoscaler.kubeconfig", s.kubeconfig(token()))
	s.write(s.T, "aws.token", token("--audience=sts.amazonaws.com"))
	// Its clients of these two services have endpoints of their own, which no variable of the SDK replaces.
	overrides := ""
	for i, service := range []string{"autoscaling", "ec2"} {
		overrides += fmt.Sprintf("[ServiceOverride %q]\nService=%s\nRegion=us-west-2\nURL=%s\nSigningRegion=us-west-2\nSigningName=%s\n", fmt.Sprint(i), service, s.url, service)
	}
	s.write(s.T, "cloud.conf", overrides)
	command, _, _ := unstructured.NestedStringSlice(container, "command")
	args := append(command[1:], "--kubeconfig="+filepath.Join(s.dir, "autoscaler.kubeconfig"), "--cloud-config="+filepath.Join(s.dir, "cloud.conf"), "--address="+freeAddress(s.T), "--scan-interval=2s",
		"--scale-down-delay-after-add=2s", "--scale-down-unneeded-time=4s", "--unremovable-node-recheck-timeout=2s")
	cmd := exec.CommandContext(interrupted, program, args...)
	// The SDK asks STS before it has read the general variable.
	cmd.Env = []string{"AWS_ENDPOINT_URL=" + s.url, "AWS_ENDPOINT_URL_STS=" + s.url, "HOME=" + s.dir}
	env, _, _ := unstructured.NestedSlice(container, "env")
	for _, one := range env {
		pair, _ := one.(map[string]any)
		if pair["name"] == "AWS_WEB_IDENTITY_TOKEN_FILE" {
			pair["value"] = filepath.Join(s.dir, "aws.token")
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s", pair["name"], pair["value"]))
	}
	return background(s.T, cmd)
}

// desired is a group's desired capacity, and how many machines it has.
func (s *scaled) desired(group string) (desired, machines int) {
	s.Helper()
	g, ok := s.account.AutoScaling().Group(group)
	if !ok {
		s.Fatalf("the group %s is not there", group)
	}
	return g.Desired, len(s.account.AutoScaling().Instances(group))
}

func (s *scaled) ready(app string) int {
	return strings.Count(s.kubectl(s.T, "", "get", "pods", "-l", "app="+app, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`), "True")
}

const scaledPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: x, image: x, resources: {requests: {cpu: %[3]s}}}], automountServiceAccountToken: false}
---
`

// TestAutoscaler runs upstream's cluster-autoscaler with the manifest, the stack and the role of the add-on, against a real API server and
// a real scheduler; AWS and the machines are pretended. Pods without room grow the group; machines that are not needed are emptied and
// end through the hook in which the masters evict pods; and no budget is broken.
func TestAutoscaler(t *testing.T) {
	program := os.Getenv(autoscalerVariable)
	if program == "" {
		t.Skip("needs upstream's program, which is on no module proxy: set " + autoscalerVariable + " to the file cluster-autoscaler of its image")
	}
	s := newScaled(t)
	s.until(time.Minute, "the first machines are nodes", func() bool {
		_, machines := s.desired(evictionGroup)
		return machines == 1 && strings.Count(s.kubectl(t, "", "get", "nodes", "-o", "name"), "\n") == 2
	})
	// The machine of the group that does not scale takes no pods here.
	s.kubectl(t, "", "cordon", nodeOf(s.account.AutoScaling().Instances("demo-fixed")[0].ID))
	log := s.autoscaler(program)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("cluster-autoscaler:\n%s", tail(log.String(), 60))
		}
	})
	master := s.evictor("a")
	step := func(within time.Duration, what string, so func() bool) {
		t.Helper()
		s.steps(within, what, so, master)
	}

	s.kubectl(t, fmt.Sprintf(scaledPods, "web", 2, "100m")+fmt.Sprintf(scaledPods, "big", 3, "1500m")+"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n", "apply", "-f", "-")
	began := time.Now()
	step(5*time.Minute, "pods without room grow the group", func() bool { desired, _ := s.desired(evictionGroup); return desired == 3 })
	step(3*time.Minute, "every pod has room", func() bool { return s.ready("big") == 3 && s.ready("web") == 2 })
	t.Logf("three machines and five pods after %v", time.Since(began).Round(time.Second))

	fewest := s.least("web")
	s.kubectl(t, "", "scale", "deployment", "big", "--replicas=1")
	began = time.Now()
	step(8*time.Minute, "machines that are not needed end", func() bool { desired, machines := s.desired(evictionGroup); return desired == 1 && machines == 1 })
	step(time.Minute, "what they had runs elsewhere", func() bool { return s.ready("web") == 2 && s.ready("big") == 1 })
	t.Logf("one machine after %v", time.Since(began).Round(time.Second))
	if n := fewest(); n < 1 {
		t.Errorf("the application had %d pods of the 1 that its budget keeps", n)
	}
	calls := s.account.Calls()
	if calls["autoscaling:TerminateInstanceInAutoScalingGroup"] != 2 || s.completed() != 2 {
		t.Errorf("%d machines ended, and %d of them through the masters' hook", calls["autoscaling:TerminateInstanceInAutoScalingGroup"], s.completed())
	}
	if calls["sts:AssumeRoleWithWebIdentity"] == 0 {
		t.Error("it has taken no role")
	}
	if desired, machines := s.desired("demo-fixed"); desired != 1 || machines != 1 {
		t.Errorf("the group that does not scale has %d machines of %d", machines, desired)
	}
	if refused := s.account.Refused(); len(refused) > 0 {
		t.Errorf("AWS refused %v", refused)
	}
	if bad := regexp.MustCompile(`(?i).*(forbidden|AccessDenied|UnauthorizedOperation|UnknownParameter|is not recognized).*`).FindAllString(log.String(), 5); len(bad) > 0 {
		t.Errorf("its rights do not suffice:\n%s", strings.Join(bad, "\n"))
	}
}
