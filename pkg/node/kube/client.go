// Package kube is a small client of a cluster's API server.
//
// Its rule: objects are sent as they are, so that it knows only the Kubernetes types that the agent decides about; every
// request states the desired result, and may be repeated.
package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Manager is our field manager in server-side apply.
const Manager = "hardtack"

// Client-side rate limits; the server has its own. They are high enough that a few dozen objects at the first start are
// not slowed down by client-go's default of 5 requests a second.
const (
	perSecond = 50
	burst     = 100
)

// Client is a client of one API server as one user. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	host    string
	config  *rest.Config
	objects dynamic.Interface

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]metav1.APIResource
}

// NewOf returns a client for a kubeconfig that is in no file.
func NewOf(kubeconfig []byte) (*Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading a kubeconfig: %w", err)
	}
	return New(config)
}

// New returns a client for the configuration.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = perSecond, burst
	config.UserAgent = "hardtack-agent"
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to talk to %s: %w", config.Host, err)
	}
	objects, err := dynamic.NewForConfigAndClient(config, c)
	if err != nil {
		return nil, fmt.Errorf("preparing to talk to %s: %w", config.Host, err)
	}
	return &Client{http: c, host: config.Host, config: config, objects: objects, kinds: map[schema.GroupVersionKind]metav1.APIResource{}}, nil
}

// Apply creates or updates an object by server-side apply: we own the fields that it names, other fields stay as they
// are. Concurrent calls for the same object all succeed.
func (c *Client) Apply(ctx context.Context, object map[string]any) error {
	u, name, resource, err := c.address(ctx, object)
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	if _, err := resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: Manager, Force: true}); err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	return nil
}

// Delete deletes an object that Apply has made, and what it owns. One that somebody else has made stays; that it is not there is
// no error.
func (c *Client) Delete(ctx context.Context, object map[string]any) error {
	u, name, resource, err := c.address(ctx, object)
	if err != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	present, err := resource.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("deleting %s: reading it: %w", name, err)
	case !slices.ContainsFunc(present.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == Manager && f.Operation == metav1.ManagedFieldsOperationApply
	}):
		return nil
	}
	// What takes its place in the meantime is another's.
	uid, background := present.GetUID(), metav1.DeletePropagationBackground
	err = resource.Delete(ctx, u.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return nil
}

// address is an object as client-go wants it, what to call it, and where the API server has it.
func (c *Client) address(ctx context.Context, object map[string]any) (u *unstructured.Unstructured, name string, resource dynamic.ResourceInterface, err error) {
	if u, err = from(object); err != nil {
		return nil, "an object", nil, err
	}
	resource, err = c.resource(ctx, u.GroupVersionKind(), u.GetNamespace())
	return u, u.GetKind() + " " + u.GetName(), resource, err
}

// from converts an object from a YAML or JSON decoder; client-go needs the number types of its own decoder.
func from(object map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encoding an object: %w", err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("an object is none: %w", err)
	}
	if u.GetName() == "" {
		return nil, fmt.Errorf("a %s has no metadata.name", u.GetKind())
	}
	return u, nil
}

// resource returns the API path of a kind, and caches it.
func (c *Client) resource(ctx context.Context, kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.kinds[kind]
	if !ok {
		if err := c.discover(ctx, kind.GroupVersion()); err != nil {
			return nil, err
		}
		if known, ok = c.kinds[kind]; !ok {
			return nil, fmt.Errorf("the API server has no %s", kind)
		}
	}
	resource := c.objects.Resource(kind.GroupVersion().WithResource(known.Name))
	if !known.Namespaced {
		return resource, nil
	}
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return resource.Namespace(namespace), nil
}

// discover lists the kinds of one API group and version. client-go's discovery client would list all groups, and
// imports protocol buffers and OpenAPI.
func (c *Client) discover(ctx context.Context, gv schema.GroupVersion) error {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	data, err := c.get(ctx, path)
	if err != nil {
		return fmt.Errorf("asking for the kinds of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("asking for the kinds of %s: %w", gv, err)
	}
	for _, r := range list.APIResources {
		// Subresources such as "deployments/scale" have a kind, but are no objects.
		if !isSub(r.Name) {
			c.kinds[gv.WithKind(r.Kind)] = r
		}
	}
	return nil
}
