package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
)

var (
	nodesResource    = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	requestsResource = schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"}
)

// The paths of lists. Nodes are served from the API server's cache (resourceVersion=0): every master lists them every few
// seconds, and a second of delay does not matter.
const (
	nodesPath    = "/api/v1/nodes?resourceVersion=0"
	mastersPath  = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dkubernetes"
	requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	signerField  = "spec.signerName="
)

var (
	_ controller.Nodes    = (*Client)(nil)
	_ controller.Requests = (*Client)(nil)
	_ controller.Objects  = (*Client)(nil)
)

// meta is the part of an object's metadata that is read.
type meta struct {
	Name   string            `json:"name"`
	UID    string            `json:"uid"`
	Labels map[string]string `json:"labels"`

	Annotations map[string]string `json:"annotations"`
}

type nodeObject struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		ProviderID string `json:"providerID"`
		Taints     []struct {
			Key string `json:"key"`
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

// Nodes lists the nodes.
func (c *Client) Nodes(ctx context.Context) ([]controller.Node, error) {
	var list struct {
		Items []nodeObject `json:"items"`
	}
	if err := c.Read(ctx, nodesPath, &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]controller.Node, 0, len(list.Items))
	for _, o := range list.Items {
		nodes = append(nodes, nodeOf(o))
	}
	return nodes, nil
}

func nodeOf(o nodeObject) controller.Node {
	n := controller.Node{Name: o.Metadata.Name, UID: o.Metadata.UID, Labels: o.Metadata.Labels, Instance: instanceOf(o.Spec.ProviderID),
		Word: wordOf(o.Status.Conditions), Answer: answerOf(o.Metadata.Annotations)}
	for _, a := range o.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil {
			n.Addresses = append(n.Addresses, ip)
		} else {
			n.Names = append(n.Names, a.Address)
		}
	}
	for _, t := range o.Spec.Taints {
		n.Uninitialized = n.Uninitialized || t.Key == ready.UninitializedTaint
	}
	for _, condition := range o.Status.Conditions {
		if condition.Type == "Ready" {
			n.Ready = condition.Status == "True"
		}
	}
	return n
}

// instanceOf returns the instance id of an AWS provider id: "aws:///eu-central-1a/i-0123456789abcdef0".
func instanceOf(providerID string) string {
	rest, ok := strings.CutPrefix(providerID, "aws://")
	if !ok {
		return ""
	}
	return rest[strings.LastIndex(rest, "/")+1:]
}

// Label sets labels of a node and leaves others alone.
func (c *Client) Label(ctx context.Context, node string, labels map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(nodesResource).Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("labelling node %s: %w", node, err)
	}
	return nil
}

// Remove deletes a node, but not a newer node of the same name.
func (c *Client) Remove(ctx context.Context, n controller.Node) error {
	uid := types.UID(n.UID)
	err := c.objects.Resource(nodesResource).Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting node %s: %w", n.Name, err)
	}
	return nil
}

// Masters returns the addresses of the API servers, from the endpoints of the Service kubernetes.
func (c *Client) Masters(ctx context.Context) ([]netip.Addr, error) {
	var list struct {
		Items []struct {
			Endpoints []struct {
				Addresses []string `json:"addresses"`
			} `json:"endpoints"`
		} `json:"items"`
	}
	if err := c.Read(ctx, mastersPath, &list); err != nil {
		return nil, fmt.Errorf("listing the API servers: %w", err)
	}
	var out []netip.Addr
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			for _, a := range e.Addresses {
				if ip, err := netip.ParseAddr(a); err == nil {
					out = append(out, ip)
				}
			}
		}
	}
	return out, nil
}

// requestObject is the part of a CertificateSigningRequest that is read.
type requestObject struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Signer   string   `json:"signerName"`
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
		Usages   []string `json:"usages"`
		Request  []byte   `json:"request"`
	} `json:"spec"`
	Status struct {
		Certificate []byte `json:"certificate"`
		Conditions  []struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"conditions"`
	} `json:"status"`
}

// Requests lists the pending certificate requests of kubelets.
func (c *Client) Requests(ctx context.Context) ([]controller.Request, error) {
	var out []controller.Request
	for _, signer := range []string{controller.SignerServing, controller.SignerClient} {
		var list struct {
			Items []requestObject `json:"items"`
		}
		if err := c.Read(ctx, requestsPath+"?fieldSelector="+url.QueryEscape(signerField+signer), &list); err != nil {
			return nil, fmt.Errorf("listing certificate requests: %w", err)
		}
		for _, o := range list.Items {
			if len(o.Status.Conditions) == 0 {
				out = append(out, controller.Request{Name: o.Metadata.Name, UID: o.Metadata.UID, Signer: o.Spec.Signer,
					Proof: o.Metadata.Annotations[controller.AnnotationProof], Reason: o.Metadata.Annotations[controller.AnnotationReason],
					User: o.Spec.Username, Groups: o.Spec.Groups, Usages: o.Spec.Usages, PEM: o.Spec.Request})
			}
		}
	}
	return out, nil
}

// Watch calls came for each request for a kubelet's client certificate that is there or that comes, until ctx ends or the
// server ends the watch, which it does after some minutes.
func (c *Client) Watch(ctx context.Context, came func()) error {
	w, err := c.objects.Resource(requestsResource).Watch(ctx, metav1.ListOptions{FieldSelector: signerField + controller.SignerClient})
	if err != nil {
		return fmt.Errorf("watching certificate requests: %w", err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Added {
			came()
		}
	}
	return nil
}

// Undecided writes into a request why it is not approved. One that is gone is not an error.
func (c *Client) Undecided(ctx context.Context, name, why string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{controller.AnnotationReason: why}}})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(requestsResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the reason into certificate request %s: %w", name, err)
	}
	return nil
}

// Approve approves a pending request. One that was decided or deleted meanwhile is not an error.
func (c *Client) Approve(ctx context.Context, name, why string) error {
	request, err := c.objects.Resource(requestsResource).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("approving certificate request %s: %w", name, err)
	}
	conditions, _, err := unstructured.NestedSlice(request.Object, "status", "conditions")
	if err != nil || len(conditions) > 0 {
		return err
	}
	err = c.approve(ctx, request, "HardtackController", why)
	// Another master was faster.
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("approving certificate request %s: %w", name, err)
	}
	return nil
}

// approve approves a request that is still as it was read.
func (c *Client) approve(ctx context.Context, request *unstructured.Unstructured, reason, why string) error {
	approved := map[string]any{"type": "Approved", "status": "True", "reason": reason, "message": why,
		"lastUpdateTime": time.Now().UTC().Format(time.RFC3339)}
	if err := unstructured.SetNestedSlice(request.Object, []any{approved}, "status", "conditions"); err != nil {
		return err
	}
	_, err := c.objects.Resource(requestsResource).Update(ctx, request, metav1.UpdateOptions{FieldManager: Manager}, "approval")
	return err
}
