package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// nodeSeen is the observation of a Node by a watch; times are this computer's, zero if not observed.
type nodeSeen struct {
	registered, ready time.Time
	// kubelet is the kubelet's version.
	kubelet string
	// cpu is the processor time that the machine's process had used on this computer when the Node became Ready.
	cpu time.Duration
	err error
}

// nodeWatch records when each node appears and when it first becomes Ready. It is safe for concurrent use.
type nodeWatch struct {
	mu   sync.Mutex
	seen map[string]nodeSeen
	pids map[string]int
}

// watchNodes watches until ctx ends.
func watchNodes(ctx context.Context, config *rest.Config) (*nodeWatch, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing to watch the nodes: %w", err)
	}
	w := &nodeWatch{seen: map[string]nodeSeen{}, pids: map[string]int{}}
	nodes := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	go func() {
		for ctx.Err() == nil {
			// A server ends every watch after some minutes; the next one begins with the current state.
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
		s.cpu, s.err = processorTime(w.pids[node.GetName()])
		s.kubelet, _, _ = unstructured.NestedString(node.Object, "status", "nodeInfo", "kubeletVersion")
	}
	w.seen[node.GetName()] = s
}

// expect sets the process of the machine that will be the named node.
func (w *nodeWatch) expect(name string, pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids[name] = pid
}

// ticks is the unit of /proc/PID/stat, 1/USER_HZ, which is the same on every architecture that we have.
const ticks = time.Second / 100

// processorTime returns the time used by a process and its threads, in user mode and in the kernel (proc(5), stat).
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the program's name in brackets, which may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var total time.Duration
	for _, i := range []int{14, 15} {
		n, err := strconv.ParseInt(fields[i-3], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process %d: field %d of stat: %w", pid, i, err)
		}
		total += time.Duration(n) * ticks
	}
	return total, nil
}

// node returns the observation of a node.
func (w *nodeWatch) node(name string) nodeSeen {
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
