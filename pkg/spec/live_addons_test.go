package spec_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// instance is a master's metadata service, with what it has in a VPC.
type instance struct{}

func (instance) Identity(context.Context) (imds.Identity, error) {
	return imds.Identity{Region: "us-west-2", AccountID: "123456789012"}, nil
}

func (instance) Get(_ context.Context, path string) ([]byte, error) {
	value, ok := map[string]string{
		"meta-data/services/partition": "aws", "meta-data/mac": "02:00:00:00:00:01",
		"meta-data/network/interfaces/macs/02:00:00:00:00:01/vpc-id": "vpc-1", "meta-data/network/interfaces/macs/02:00:00:00:00:01/subnet-id": "subnet-1",
	}[path]
	if !ok {
		return nil, fmt.Errorf("asking for %s: %w", path, imds.ErrNotFound)
	}
	return []byte(value), nil
}

// cloudValues are the variables of the add-ons that call AWS, as a master has them.
func cloudValues(t *testing.T) map[string]string {
	t.Helper()
	values, err := addons.Cloud(t.Context(), instance{}, "demo", true)
	assert.NilError(t, err)
	c := complete(t, issuerDocument+publicIssuer+roomy+allAddons)
	for name, image := range c.Cluster.AddonImages {
		values[machine.ImageVariable(name)] = image
	}
	return values
}

// allowed reports whether a service account of kube-system may do something, by the API server's own authorizer.
func (c *live) allowed(t *testing.T, account, verb, group, resource, name, namespace string) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	review := map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{"user": "system:serviceaccount:kube-system:" + account,
		"resourceAttributes": map[string]string{"verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name, "namespace": namespace}}}
	body, err := json.Marshal(review)
	assert.NilError(t, err)
	code, text := c.try(t.Context(), c.admin(), http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", string(body))
	assert.Equal(t, code, http.StatusCreated, text)
	var answer struct{ Status struct{ Allowed bool } }
	assert.NilError(t, json.Unmarshal([]byte(text), &answer))
	return answer.Status.Allowed
}

// cloudAddons: the API server took every object of the add-ons that call AWS; it would make their pods; and they have the rights that
// they need, and not those of their neighbours.
func (c *live) cloudAddons(t *testing.T) {
	t.Helper()
	for workload, account := range map[string]string{
		"deployments/cluster-autoscaler": machine.ClusterAutoscaler, "deployments/aws-cloud-controller-manager": machine.CloudController,
		"deployments/ebs-csi-controller": machine.EBSDriver, "daemonsets/ebs-csi-node": "",
	} {
		code, text := c.try(t.Context(), c.admin(), http.MethodGet, "/apis/apps/v1/namespaces/kube-system/"+workload, "", "")
		assert.Equal(t, code, http.StatusOK, text)
		var made struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		assert.NilError(t, json.Unmarshal([]byte(text), &made))
		pod := corev1.Pod{Spec: made.Spec.Template.Spec}
		pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "judged", "kube-system"
		body, err := json.Marshal(pod)
		assert.NilError(t, err)
		c.want(t, c.admin(), http.MethodPost, "/api/v1/namespaces/kube-system/pods?dryRun=All", string(body), http.StatusCreated, "")
		c.takesItsRole(t, workload, account, pod.Spec)
	}
	for _, tt := range []struct {
		account, verb, group, resource, name, namespace string
		want                                            bool
	}{
		{machine.ClusterAutoscaler, "update", "", "nodes", "n", "", true},
		{machine.ClusterAutoscaler, "create", "", "pods/eviction", "p", "default", true},
		{machine.ClusterAutoscaler, "update", "coordination.k8s.io", "leases", "cluster-autoscaler", "kube-system", true},
		{machine.ClusterAutoscaler, "update", "coordination.k8s.io", "leases", "kube-scheduler", "kube-system", false},
		{machine.ClusterAutoscaler, "delete", "", "nodes", "n", "", false},
		{machine.ClusterAutoscaler, "delete", "", "pods", "p", "default", false},
		{machine.ClusterAutoscaler, "get", "", "secrets", "s", "kube-system", false},
		{machine.ClusterAutoscaler, "get", "", "configmaps", "extension-apiserver-authentication", "kube-system", false},
		{machine.CloudController, "patch", "", "nodes/status", "n", "", true},
		{machine.CloudController, "delete", "", "nodes", "n", "", false}, // hardtack-controller's
		{machine.CloudController, "create", "", "serviceaccounts/token", "default", "kube-system", false},
		{machine.CloudController, "get", "", "configmaps", "extension-apiserver-authentication", "kube-system", true},
		{machine.EBSDriver, "create", "", "persistentvolumes", "v", "", true},
		{machine.EBSDriver, "patch", "", "nodes", "n", "", false},
		{machine.EBSDriver, "list", "", "secrets", "", "default", false},
		{machine.EBSDriver + "-node", "get", "", "nodes", "n", "", true},
		{machine.EBSDriver + "-node", "patch", "", "nodes", "n", "", false}, // root on one node would have every other
		{machine.EBSDriver + "-node", "create", "", "persistentvolumes", "v", "", false},
	} {
		assert.Equal(t, c.allowed(t, tt.account, tt.verb, tt.group, tt.resource, tt.name, tt.namespace), tt.want, "%+v", tt)
	}
}

// takesItsRole: a pod's token is for STS and of the service account whose role it names; one without a role has no token for STS.
func (c *live) takesItsRole(t *testing.T, workload, account string, pod corev1.PodSpec) {
	t.Helper()
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		env[v.Name] = v.Value
	}
	audience := ""
	for _, v := range pod.Volumes {
		if v.Projected != nil {
			audience = v.Projected.Sources[0].ServiceAccountToken.Audience
		}
	}
	if account == "" {
		assert.Equal(t, env["AWS_ROLE_ARN"]+audience, "", workload)
		return
	}
	assert.Equal(t, pod.ServiceAccountName, account)
	assert.Equal(t, env["AWS_ROLE_ARN"], "arn:aws:iam::123456789012:role/demo-us-west-2-"+account)
	assert.Equal(t, env["AWS_REGION"], "us-west-2")
	assert.Equal(t, audience, atSTS)
}
