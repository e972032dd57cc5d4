package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/notice/watch"
)

// Self is a machine's own node, as the node itself: NodeRestriction lets it change the status of no other.
type Self struct {
	File *File
	// Name is the node's.
	Name string
}

var _ watch.Node = (*Self)(nil)

// condition is a condition of a node's status.
type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Message string `json:"message"`
	// Beat is when it was last written.
	Beat time.Time `json:"lastHeartbeatTime"`
}

// ending returns the message of notice.Condition, "" if its status is not True.
func ending(all []condition) string {
	for _, c := range all {
		if c.Type == notice.Condition && c.Status == "True" {
			return c.Message
		}
	}
	return ""
}

// Exists asks the API server whether it has the node.
func (s *Self) Exists(ctx context.Context) (bool, error) {
	return ask(s.File, func(c *Client) (bool, error) {
		_, err := c.objects.Resource(nodesResource).Get(ctx, s.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("reading node %s: %w", s.Name, err)
		}
		return true, nil
	})
}

// Ending reads the condition.
func (s *Self) Ending(ctx context.Context) (string, error) {
	return ask(s.File, func(c *Client) (string, error) {
		var node struct {
			Status struct {
				Conditions []condition `json:"conditions"`
			} `json:"status"`
		}
		if err := c.Read(ctx, "/api/v1/nodes/"+url.PathEscape(s.Name), &node); err != nil {
			return "", fmt.Errorf("reading node %s: %w", s.Name, err)
		}
		return ending(node.Status.Conditions), nil
	})
}

// SetEnding writes the condition.
func (s *Self) SetEnding(ctx context.Context, reason, message string) error {
	return s.setCondition(ctx, condition{Type: notice.Condition, Status: statusOf(message != ""), Message: message}, reason)
}

func statusOf(so bool) string {
	if so {
		return "True"
	}
	return "False"
}

// setCondition writes a condition, by a patch that leaves the kubelet's as they are. The kubelet's leave it too: it writes by such
// patches itself.
func (s *Self) setCondition(ctx context.Context, c condition, reason string) error {
	now := metav1.NewTime(time.Now())
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": c.Type, "status": c.Status, "reason": reason, "message": c.Message, "lastHeartbeatTime": now, "lastTransitionTime": now,
	}}}})
	if err != nil {
		return err
	}
	return s.File.do(func(client *Client) error {
		_, err := client.objects.Resource(nodesResource).Patch(ctx, s.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: Manager}, "status")
		if err != nil {
			return fmt.Errorf("writing condition %s of node %s: %w", c.Type, s.Name, err)
		}
		return nil
	})
}
