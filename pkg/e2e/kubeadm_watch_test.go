package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// nodeSeen is what a watch has told of a Node; times are this computer's, zero for what has not been.
type nodeSeen struct {
	registered, ready time.Time
	// kubelet is the kubelet's version.
	kubelet string
}

// nodeWatch notes when nodes come and when they are Ready first. It is safe for concurrent use.
type nodeWatch struct {
	mu   sync.Mutex
	seen map[string]nodeSeen
}

// watchNodes watches until ctx ends.
func watchNodes(ctx context.Context, config *rest.Config) (*nodeWatch, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the nodes: %w", err)
	}
	w := &nodeWatch{seen: map[string]nodeSeen{}}
	nodes := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	go func() {
		for ctx.Err() == nil {
			// A server ends every watch after some minutes; the next one begins with what there is.
			events, err := nodes.Watch(ctx, metav1.ListOptions{})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
				continue
			}
			for e := range events.ResultChan() {
				if node, ok := e.Object.(*unstructured.Unstructured); ok {
					w.note(node)
				}
			}
		}
	}()
	return w, nil
}

func (w *nodeWatch) note(node *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.seen[node.GetName()]
	if s.registered.IsZero() {
		s.registered = time.Now()
	}
	if s.ready.IsZero() && isReady(node) {
		s.ready = time.Now()
		s.kubelet, _, _ = unstructured.NestedString(node.Object, "status", "nodeInfo", "kubeletVersion")
	}
	w.seen[node.GetName()] = s
}

// of is what is known of a node.
func (w *nodeWatch) of(name string) nodeSeen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen[name]
}

func isReady(node *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}
