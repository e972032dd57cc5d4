package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/ready"
)

var _ ready.Self = (*Self)(nil)

// wordOf reads controller.LaunchCondition. Any other status than its two says nothing.
func wordOf(all []condition) controller.Word {
	for _, c := range all {
		if c.Type == controller.LaunchCondition && (c.Status == statusOf(true) || c.Status == statusOf(false)) {
			return controller.Word{Works: c.Status == statusOf(true), Said: c.Beat.UTC()}
		}
	}
	return controller.Word{}
}

// answerOf reads controller.AnnotationLaunch. What nobody can read is no answer: it is written anew.
func answerOf(annotations map[string]string) (a controller.Answer) {
	if json.Unmarshal([]byte(annotations[controller.AnnotationLaunch]), &a) != nil {
		return controller.Answer{}
	}
	return a
}

// Tell writes the answer into a node. One that is gone is not an error.
func (c *Client) Tell(ctx context.Context, n controller.Node, a controller.Answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": n.UID, "annotations": map[string]string{controller.AnnotationLaunch: string(text)}}})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(nodesResource).Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // a conflict is a later node of that name
		return fmt.Errorf("answering the launch of node %s: %w", n.Name, err)
	}
	return nil
}

// Say writes the condition. That the roles work is written once, and that they do not yet is written each time anew.
func (s *Self) Say(ctx context.Context, works bool, text string) error {
	reason := "ChecksFail"
	if works {
		reason = "ChecksPass"
		n, err := s.node(ctx)
		if err != nil || n.Word.Works {
			return err
		}
	}
	return s.setCondition(ctx, condition{Type: controller.LaunchCondition, Status: statusOf(works), Message: text}, reason)
}

// Answer reads a master's answer. One to an earlier machine of the same name is none.
func (s *Self) Answer(ctx context.Context) (ready.Answer, error) {
	n, err := s.node(ctx)
	if err != nil || n.Answer.Instance != n.Instance {
		return ready.Answer{}, err
	}
	a := n.Answer
	return ready.Answer{Over: a.Over, Launched: a.State == controller.Launched, State: a.State, Why: a.Why}, nil
}

// node reads this machine's node, from the API server's cache: many machines may ask at once.
func (s *Self) node(ctx context.Context) (controller.Node, error) {
	return ask(s.File, func(c *Client) (controller.Node, error) {
		var n nodeObject
		if err := c.Read(ctx, "/api/v1/nodes/"+url.PathEscape(s.Name)+"?resourceVersion=0", &n); err != nil {
			return controller.Node{}, fmt.Errorf("reading node %s: %w", s.Name, err)
		}
		return nodeOf(n), nil
	})
}
