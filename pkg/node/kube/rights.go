package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MayAll asks the API server whether the client's user may do everything with every resource. Every user may ask that.
func (c *Client) MayAll(ctx context.Context) (bool, error) {
	reviews := c.objects.Resource(schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1", Resource: "selfsubjectaccessreviews"})
	review, err := reviews.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"verb": "*", "group": "*", "resource": "*"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("asking for this user's rights: %w", err)
	}
	may, _, err := unstructured.NestedBool(review.Object, "status", "allowed")
	return may, err
}

// MayAll is Client.MayAll.
func (f *File) MayAll(ctx context.Context) (bool, error) {
	return ask(f, func(c *Client) (bool, error) { return c.MayAll(ctx) })
}
