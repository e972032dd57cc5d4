// Package kube talks to a cluster's API server.
//
// Its rule: objects go through as they are written, so that it knows no type of Kubernetes but those that the agent
// decides about; every request says what shall be, and may be sent again.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Manager is the name by which the API server remembers which fields are ours.
const Manager = "hardtack"

// The limits of requests, which are the API server's own business: this is so that a burst of a few dozen
// objects at the first start is not held up by client-go's default of 5 a second.
const (
	perSecond = 50
	burst     = 100
)

// Client is one user at one API server. It is safe for concurrent use.
type Client struct {
	http    *http.Client
	host    string
	objects dynamic.Interface

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]metav1.APIResource
}

// File is a kubeconfig whose content changes: certificates in it are renewed. It is safe for concurrent use.
type File struct {
	path string

	mu     sync.Mutex
	text   []byte
	client *Client
}

// NewFile names a kubeconfig, which need not be there yet.
func NewFile(path string) *File { return &File{path: path} }

// Client is the client of the kubeconfig as it is now: the last one while it has not changed.
func (f *File) Client() (*Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if f.client != nil && bytes.Equal(text, f.text) {
		return f.client, nil
	}
	// BuildConfigFromFlags reads it again, since only that resolves the paths that are in it. A change in
	// between is seen at the next call.
	config, err := clientcmd.BuildConfigFromFlags("", f.path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path, err)
	}
	client, err := New(config)
	if err != nil {
		return nil, err
	}
	f.text, f.client = text, client
	return client, nil
}

// New makes a client.
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
	return &Client{http: c, host: config.Host, objects: objects, kinds: map[schema.GroupVersionKind]metav1.APIResource{}}, nil
}

// Apply makes an object what it says, by server-side apply: it is made where it is not there, fields that it names
// become ours, and other fields stay as they are. Of several who apply the same at once none fails.
func (c *Client) Apply(ctx context.Context, object map[string]any) error {
	u, err := from(object)
	if err != nil {
		return err
	}
	name := u.GetKind() + " " + u.GetName()
	resource, err := c.resource(ctx, u.GroupVersionKind(), u.GetNamespace())
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	if _, err := resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: Manager, Force: true}); err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	return nil
}

// from takes an object as a YAML or JSON decoder gives it; client-go wants the numbers of its own decoder.
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

// resource finds by which path the server keeps objects of a kind, and remembers it.
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

// discover asks for the kinds of one version of one group. client-go's discovery client would ask for all of
// them, and brings in protocol buffers and OpenAPI.
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
		// "deployments/scale" is of a kind too, and no object of its own.
		if !isSub(r.Name) {
			c.kinds[gv.WithKind(r.Kind)] = r
		}
	}
	return nil
}
