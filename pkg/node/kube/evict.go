package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/evict"
)

// mirrorAnnotation is of a pod that shows a static pod.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// component is the source of the Events that we write.
const component = "hardtack-controller"

// Evictor is what package evict needs of the API server. The holder's name is this master's, and no other's.
type Evictor struct {
	File   *File
	Holder string
}

var _ evict.Cluster = (*Evictor)(nil)

// Nodes lists the nodes.
func (e *Evictor) Nodes(ctx context.Context) ([]evict.Node, error) {
	return ask(e.File, func(c *Client) ([]evict.Node, error) { return c.evictionNodes(ctx) })
}

// Change is Client.mark.
func (e *Evictor) Change(ctx context.Context, n evict.Node) error {
	return e.File.do(func(c *Client) error { return c.mark(ctx, n) })
}

// Pods is Client.podsOf.
func (e *Evictor) Pods(ctx context.Context, node string) ([]evict.Pod, error) {
	return ask(e.File, func(c *Client) ([]evict.Pod, error) { return c.podsOf(ctx, node) })
}

// Evict is Client.evict.
func (e *Evictor) Evict(ctx context.Context, p evict.Pod) error {
	return e.File.do(func(c *Client) error { return c.evict(ctx, p) })
}

// Tell is Client.tell.
func (e *Evictor) Tell(ctx context.Context, n evict.Node, event evict.Event) error {
	return e.File.do(func(c *Client) error { return c.tell(ctx, n, event) })
}

// Turn takes or keeps the lease.
func (e *Evictor) Turn(ctx context.Context) (bool, error) {
	return ask(e.File, func(c *Client) (bool, error) {
		return c.Take(ctx, Lease{Name: evict.LeaseName, Holder: e.Holder, Life: evict.LeaseLife})
	})
}

func (c *Client) evictionNodes(ctx context.Context) ([]evict.Node, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				meta
				Version string    `json:"resourceVersion"`
				Created time.Time `json:"creationTimestamp"`
			} `json:"metadata"`
			Spec struct {
				ProviderID    string `json:"providerID"`
				Unschedulable bool   `json:"unschedulable"`
			} `json:"spec"`
			Status struct {
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		} `json:"items"`
	}
	// Not an older state from the cache, as nodesPath: what this master or another has just marked must be seen, or it would be
	// done once more.
	if err := c.Read(ctx, "/api/v1/nodes", &list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	nodes := make([]evict.Node, 0, len(list.Items))
	for _, o := range list.Items {
		n := evict.Node{Name: o.Metadata.Name, UID: o.Metadata.UID, Instance: instanceOf(o.Spec.ProviderID), Created: o.Metadata.Created, Version: o.Metadata.Version,
			Unschedulable: o.Spec.Unschedulable, Exclude: excludeOf(o.Metadata.Labels), Mark: o.Metadata.Annotations[evict.Annotation], Ending: ending(o.Status.Conditions)}
		for _, condition := range o.Status.Conditions {
			// The controller manager writes Unknown 40 s after the kubelet's last word.
			n.Lost = n.Lost || condition.Type == "Ready" && condition.Status == "Unknown"
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func excludeOf(labels map[string]string) *string {
	if value, ok := labels[evict.ExcludeLabel]; ok {
		return &value
	}
	return nil
}

// mark cordons or uncordons a node, takes it out of load balancers or back, and sets our annotation.
func (c *Client) mark(ctx context.Context, n evict.Node) error {
	var text any // null removes an annotation
	if n.Mark != "" {
		text = n.Mark
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": n.UID, "resourceVersion": n.Version, "annotations": map[string]any{evict.Annotation: text},
			"labels": map[string]any{evict.ExcludeLabel: n.Exclude}},
		"spec": map[string]any{"unschedulable": n.Unschedulable},
	})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(nodesResource).Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return fmt.Errorf("%w: %w", evict.ErrChanged, err)
	case err != nil:
		return fmt.Errorf("cordoning or uncordoning node %s: %w", n.Name, err)
	}
	return nil
}

// podsOf lists the pods of a node.
func (c *Client) podsOf(ctx context.Context, node string) ([]evict.Pod, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				meta
				Namespace string       `json:"namespace"`
				Deleted   *metav1.Time `json:"deletionTimestamp"`
				Owners    []struct {
					Kind       string `json:"kind"`
					Controller bool   `json:"controller"`
				} `json:"ownerReferences"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := c.Read(ctx, "/api/v1/pods?fieldSelector="+url.QueryEscape("spec.nodeName="+node), &list); err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	pods := make([]evict.Pod, 0, len(list.Items))
	for _, o := range list.Items {
		_, mirror := o.Metadata.Annotations[mirrorAnnotation]
		p := evict.Pod{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, Mirror: mirror, Ending: o.Metadata.Deleted != nil}
		for _, owner := range o.Metadata.Owners {
			if owner.Controller {
				p.Controller = owner.Kind
			}
		}
		pods = append(pods, p)
	}
	return pods, nil
}

// evict asks for an eviction. It is no request of client-go's: that waits inside the call, for up to ten times the answer's
// Retry-After, and one budget would hold up every other pod.
func (c *Client) evict(ctx context.Context, p evict.Pod) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": p.Name, "namespace": p.Namespace},
		// A StatefulSet's next pod has the same name.
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": p.UID}},
	})
	if err != nil {
		return err
	}
	path := "/api/v1/namespaces/" + url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/eviction"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.host+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("evicting pod %s: %w", p, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode < http.StatusMultipleChoices, answer.StatusCode == http.StatusNotFound:
		return nil
	case err != nil:
		return fmt.Errorf("evicting pod %s: %w", p, err)
	}
	return &evict.BlockedError{Why: whyNot(answer.Status, text)}
}

// whyNot returns the reason of a refusal: its message, and its causes, which name the budget.
func whyNot(code string, text []byte) string {
	var status metav1.Status
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		return code
	}
	reasons := []string{status.Message}
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			reasons = append(reasons, cause.Message)
		}
	}
	return strings.Join(reasons, " ")
}

// tell writes an Event of a node, which kubectl describe node shows. Events of what has no namespace are in default.
func (c *Client) tell(ctx context.Context, n evict.Node, e evict.Event) error {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	now := time.Now().UTC().Format(time.RFC3339)
	return c.Apply(ctx, map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": n.Name + "." + e.ID, "namespace": metav1.NamespaceDefault},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": n.Name, "uid": n.UID},
		"type":           kind, "reason": e.Reason, "message": e.Message, "source": map[string]any{"component": component},
		"firstTimestamp": now, "lastTimestamp": now, "count": 1,
	})
}
