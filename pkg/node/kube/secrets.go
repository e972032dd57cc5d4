package kube

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var secretsResource = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// secretsPage is the number of Secrets in one answer: a Secret has at most 1 MiB.
const secretsPage = 100

// RewriteSecrets writes every Secret again as it is, and returns how many. The API server encrypts each with its first
// key: it writes an object that another key has encrypted even if nothing else changes. A Secret that somebody else
// has changed or deleted meanwhile needs no writing.
func (c *Client) RewriteSecrets(ctx context.Context) (int, error) {
	written := 0
	secrets := c.objects.Resource(secretsResource)
	for next := ""; ; {
		list, err := secrets.List(ctx, metav1.ListOptions{Limit: secretsPage, Continue: next})
		if err != nil {
			return written, fmt.Errorf("listing Secrets: %w", err)
		}
		for i := range list.Items {
			s := &list.Items[i]
			_, err := secrets.Namespace(s.GetNamespace()).Update(ctx, s, metav1.UpdateOptions{FieldManager: Manager})
			switch {
			case err == nil:
				written++
			case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
				return written, fmt.Errorf("writing Secret %s/%s again: %w", s.GetNamespace(), s.GetName(), err)
			}
		}
		if next = list.GetContinue(); next == "" {
			return written, nil
		}
	}
}
