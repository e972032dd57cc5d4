package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kube"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// autoscalerVariable names the program cluster-autoscaler, as its image has it: crane export IMAGE - | tar x cluster-autoscaler.
const autoscalerVariable = "HARDTACK_CLUSTER_AUTOSCALER"

// autoscalerProgram is the path of upstream's program. A test skips where the variable is not set, and fails where it names no program.
func autoscalerProgram(t *testing.T) string {
	t.Helper()
	program := os.Getenv(autoscalerVariable)
	if program == "" {
		t.Skipf("%s is not set: let it name the file cluster-autoscaler of upstream's image", autoscalerVariable)
	}
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s: %v", autoscalerVariable, err)
	}
	return program
}

// autoscalerRole is the role that the add-on's pods take.
var autoscalerRole = machine.PodRolePrefix("demo", "us-west-2") + machine.ClusterAutoscaler

// manifest applies the add-on's objects but for its Deployment, whose pods would wait for a node too, and returns that one's container.
// Its roles are kept.
func (s *scaled) manifest() (container map[string]any) {
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
	for _, o := range objects {
		object := normal(s.T, o.Value)
		if strings.HasPrefix(o.String(), "Deployment/") {
			list, _, _ := unstructured.NestedSlice(object, "spec", "template", "spec", "containers")
			container, _ = list[0].(map[string]any)
			continue
		}
		if _, is := object["rules"]; is {
			s.roles = append(s.roles, object)
		}
		if err := client.Apply(s.Context(), o.Value); err != nil {
			s.Fatal(err)
		}
	}
	return container
}

// autoscaler starts the program as the manifest's pod would: with its arguments and variables, its rights in the cluster, and the role
// that its token is worth. Only its times are shorter.
func (s *scaled) autoscaler(program string) fmt.Stringer {
	s.Helper()
	container := s.manifest()
	token := func(audience ...string) string {
		return strings.TrimSpace(s.kubectl(s.T, "", append([]string{"create", "token", "cluster-autoscaler", "--namespace=kube-system"}, audience...)...))
	}
	s.write(s.T, "autoscaler.kubeconfig", s.kubeconfig(token()))
	s.write(s.T, "aws.token", token("--audience=sts.amazonaws.com"))
	s.write(s.T, "cloud.conf", cloudConf(s.url))
	command, _, _ := unstructured.NestedStringSlice(container, "command")
	args := append(command[1:], "--kubeconfig="+filepath.Join(s.dir, "autoscaler.kubeconfig"), "--cloud-config="+filepath.Join(s.dir, "cloud.conf"), "--address="+freeAddress(s.T), "--scan-interval=2s",
		"--scale-down-delay-after-add=2s", "--scale-down-unneeded-time=4s", "--unremovable-node-recheck-timeout=2s", "--initial-node-group-backoff-duration=5s", "--max-node-group-backoff-duration=5s")
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
	s.program = cmd
	return background(s.T, cmd)
}

// cloudConf is the program's configuration of where AWS is: its clients of these two services have endpoints of their own, which no
// variable of the SDK replaces.
func cloudConf(endpoint string) (text string) {
	for i, service := range []string{"autoscaling", "ec2"} {
		text += fmt.Sprintf("[ServiceOverride \"%d\"]\nService=%s\nRegion=us-west-2\nURL=%s\nSigningRegion=us-west-2\nSigningName=%[2]s\n", i, service, endpoint)
	}
	return text
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

// is reports whether a group has so many machines, and is to have no other number.
func (s *scaled) is(group string, want int) bool {
	desired, machines := s.desired(group)
	return desired == want && machines == want
}

// activities are how many machines a group has launched, could not launch, and has ended.
func (s *scaled) activities(group string) (launched, failed, ended int) {
	s.Helper()
	out, err := s.api.DescribeScalingActivities(s.Context(), &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: &group})
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range out.Activities {
		switch {
		case a.StatusCode == types.ScalingActivityStatusCodeFailed:
			failed++
		case strings.HasPrefix(*a.Description, "Launching"):
			launched++
		default:
			ended++
		}
	}
	return launched, failed, ended
}

func (s *scaled) ready(app string) int {
	return strings.Count(s.kubectl(s.T, "", "get", "pods", "-l", "app="+app, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`), "True")
}

// places are the nodes of an application's pods.
func (s *scaled) places(app string) []string {
	return strings.Fields(s.kubectl(s.T, "", "get", "pods", "-l", "app="+app, "-o", `jsonpath={.items[*].spec.nodeName}`))
}

// said reports whether the program has told a pod of the application so, as an event.
func (s *scaled) said(app, reason, message string) bool {
	events := s.kubectl(s.T, "", "get", "events", "--field-selector=involvedObject.kind=Pod,reason="+reason, "-o", `jsonpath={range .items[*]}{.involvedObject.name} {.message}{"\n"}{end}`)
	return slices.ContainsFunc(strings.Split(events, "\n"), func(line string) bool {
		return strings.HasPrefix(line, app+"-") && strings.Contains(line, message)
	})
}

// scaledPods is a Deployment of pods that ask for a part of a processor, with more of their specification.
const scaledPods = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: x, image: x, resources: {requests: {cpu: %[3]s}}}], automountServiceAccountToken: false%[4]s}
---
`

// unusedRights are the rights of the add-on's manifest that this test may not see used, with the reason why each is there.
var unusedRights = map[string]string{
	"get nodes":    "it reads a node again when somebody else has changed it meanwhile",
	"patch events": "it counts an event that it says again",
}

// TestAutoscaler runs upstream's cluster-autoscaler with the manifest, the stack and the role of the add-on, against a real API server and
// a real scheduler; AWS and the machines are pretended. Pods without room grow the group, to its max and no further, and one from no
// machine at all; where EC2 has no room, it asks for no more and tries again; machines that are not needed are emptied and end through the
// hook in which the masters evict pods; no budget is broken, and no group is touched that is not tagged for it. Its rights are those that
// it uses.
func TestAutoscaler(t *testing.T) {
	program := autoscalerProgram(t)
	s := newScaled(t)
	s.until(time.Minute, "the first machines are nodes", func() bool {
		return s.is(evictionGroup, 1) && strings.Count(s.kubectl(t, "", "get", "nodes", "-o", "name"), "\n") == 2
	})
	first := nodeOf(s.account.AutoScaling().Instances(evictionGroup)[0].ID)
	// The machine of the group that does not scale takes no pods here.
	s.kubectl(t, "", "cordon", nodeOf(s.account.AutoScaling().Instances(fixedGroup)[0].ID))
	log := s.autoscaler(program)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("cluster-autoscaler:\n%s", tail(log.String(), 100))
		}
	})
	master := s.evictor("a")
	step := func(within time.Duration, what string, so func() bool) {
		t.Helper()
		began := time.Now()
		s.steps(within, what, so, master)
		t.Logf("%s after %v", what, time.Since(began).Round(time.Second))
	}

	// EC2 has no machine: the group is not left with a wish that would come true when nobody needs it any more.
	s.full.Store(true)
	s.kubectl(t, fmt.Sprintf(scaledPods, "web", 2, "100m", "")+fmt.Sprintf(scaledPods, "big", 2, "1500m", "")+"apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\nspec: {minAvailable: 1, selector: {matchLabels: {app: web}}}\n", "apply", "-f", "-")
	step(5*time.Minute, "a pod without room asks for a machine", func() bool { return s.said("big", "TriggeredScaleUp", evictionGroup+" 1->2 (max: 3)") })
	step(5*time.Minute, "the machine that EC2 does not have is not asked for any more", func() bool { return s.is(evictionGroup, 1) })
	if launched, failed, ended := s.activities(evictionGroup); launched != 1 || failed == 0 || ended != 0 {
		t.Errorf("%d machines launched, %d not launched, %d ended", launched, failed, ended)
	}
	s.full.Store(false)
	step(6*time.Minute, "pods without room grow the group", func() bool { return s.is(evictionGroup, 2) && s.ready("big") == 2 && s.ready("web") == 2 })

	// To its max, and no further; and another from nothing, by what its tags say of its nodes.
	s.kubectl(t, "", "scale", "deployment", "big", "--replicas=4")
	s.kubectl(t, fmt.Sprintf(scaledPods, "picky", 1, "100m", `, nodeSelector: {team: web}, tolerations: [{key: dedicated, operator: Equal, value: web, effect: NoSchedule}]`), "apply", "-f", "-")
	step(6*time.Minute, "the group is at its max, and pods run", func() bool { return s.is(evictionGroup, 3) && s.ready("big") == 3 })
	step(6*time.Minute, "a group without machines has one for the pods that ask for its label", func() bool { return s.is(fromNone, 1) && s.ready("picky") == 1 })
	step(3*time.Minute, "a pod more is told why it waits", func() bool { return s.said("big", "NotTriggerScaleUp", "max node group size reached") })
	if !s.is(evictionGroup, 3) || !s.is(fromNone, 1) || s.ready("big") != 3 {
		t.Errorf("beyond its max: %v", s.account.AutoScaling().Instances(evictionGroup))
	}

	// The first machine keeps nothing but what has a budget.
	fewest := s.least("web")
	if got := s.places("web"); !slices.Equal(got, []string{first, first}) {
		t.Fatalf("the pods with a budget are on %v, not on %s", got, first)
	}
	s.kubectl(t, "", "delete", "deployment", "picky", "--wait=false")
	s.kubectl(t, "", "delete", "replicasets,pods", "-l", "app=picky", "--force", "--grace-period=0") // there is no garbage collector
	for _, pod := range strings.Fields(s.kubectl(t, "", "get", "pods", "-l", "app=big", "--field-selector=spec.nodeName="+first, "-o", "jsonpath={.items[*].metadata.name}")) {
		s.kubectl(t, "", "annotate", "pod", pod, "controller.kubernetes.io/pod-deletion-cost=-100")
	}
	s.kubectl(t, "", "scale", "deployment", "big", "--replicas=1")
	step(8*time.Minute, "machines that are not needed end", func() bool { return s.is(evictionGroup, 1) && s.is(fromNone, 0) })
	step(time.Minute, "what they had runs elsewhere", func() bool {
		return s.ready("web") == 2 && s.ready("big") == 1 && !slices.Contains(s.places("web"), first)
	})
	if n := fewest(); n < 1 {
		t.Errorf("the application had %d pods of the 1 that its budget keeps", n)
	}
	s.judgeEnds(first)
	s.judgeRights(log)
}

// judgeEnds: three machines have ended as they should, and nothing was done to groups that are not the program's.
func (s *scaled) judgeEnds(first string) {
	s.Helper()
	ended := s.ended()
	for name, how := range ended {
		if how != "cordoned: true, marked: true, pods: 0" {
			s.Errorf("the machine of %s ended while its node was %s", name, how)
		}
	}
	if _, is := ended[first]; len(ended) != 3 || !is {
		s.Errorf("the machines of %v ended", slices.Sorted(maps.Keys(ended)))
	}
	if calls := s.account.Used(autoscalerRole)["autoscaling:TerminateInstanceInAutoScalingGroup"]; calls != 3 || s.completed() != 3 {
		s.Errorf("%d machines ended, and %d of them through the masters' hook", calls, s.completed())
	}
	// With its machine each group's desired capacity went, or another would have been launched for it.
	if launched, _, ended := s.activities(evictionGroup); launched != 3 || ended != 2 {
		s.Errorf("the group has launched %d machines, and ended %d", launched, ended)
	}
	if launched, failed, ended := s.activities(fromNone); launched != 1 || failed != 0 || ended != 1 {
		s.Errorf("the group that was empty has launched %d machines, not launched %d, and ended %d", launched, failed, ended)
	}
	for _, group := range append(slices.Collect(maps.Keys(halfTagged)), fixedGroup) {
		if launched, failed, ended := s.activities(group); launched != 1 || failed != 0 || ended != 0 || !s.is(group, 1) {
			s.Errorf("the group %s, which is not its own, has launched %d machines, not launched %d, and ended %d", group, launched, failed, ended)
		}
	}
}

// judgeRights: nothing was refused, and nothing is allowed that is not used.
func (s *scaled) judgeRights(log fmt.Stringer) {
	s.Helper()
	if refused := s.account.Refused(); len(refused) > 0 {
		s.Errorf("AWS refused %v", refused)
	}
	if s.account.Calls()["sts:AssumeRoleWithWebIdentity"] == 0 {
		s.Error("it has taken no role")
	}
	if diff := cmp.Diff(s.allowed, slices.Sorted(maps.Keys(s.account.Used(autoscalerRole)))); diff != "" {
		s.Errorf("the role allows (-) and its pods use (+):\n%s", diff)
	}
	// The kubelet ends a pod so; then its status is not left behind.
	if err := s.program.Process.Signal(syscall.SIGTERM); err != nil {
		s.Fatal(err)
	}
	s.until(time.Minute, "it takes its status with it", func() bool {
		return s.kubectl(s.T, "", "get", "configmap", "--namespace=kube-system", "--ignore-not-found", "-o", "name", "cluster-autoscaler-status") == ""
	})
	if bad := regexp.MustCompile(`(?i).*(forbidden|AccessDenied|UnauthorizedOperation|UnknownParameter|is not recognized).*`).FindAllString(log.String(), 5); len(bad) > 0 {
		s.Errorf("its rights do not suffice:\n%s", strings.Join(bad, "\n"))
	}
	used, refused := s.asked()
	if len(refused) > 0 {
		s.Errorf("the API server refused %v", refused)
	}
	rights := granted(s.T, s.roles)
	for _, r := range rights {
		// An API server that does not stream lists is asked for one before each watch.
		if what, lists := strings.CutPrefix(r, "list "); !used[r] && (!lists || !used["watch "+what]) && unusedRights[r] == "" {
			s.Errorf("the manifest allows %s, which is not used, and without a reason", r)
		}
	}
	for r := range unusedRights {
		if !slices.Contains(rights, r) {
			s.Errorf("there is a reason for %s, which the manifest does not allow", r)
		}
	}
}
