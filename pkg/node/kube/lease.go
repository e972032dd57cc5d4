package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// leasePoll is the time between two looks at a lease that somebody else has.
const leasePoll = 2 * time.Second

// errHeld means that somebody else has the lease.
var errHeld = errors.New("it is held")

// Lease is a Lease (coordination.k8s.io/v1) in kube-system that one holder at a time has.
type Lease struct {
	Name, Holder string
	// Life is after how long others take it from a holder that has vanished; seconds at least.
	Life time.Duration
}

// leases are those of kube-system.
func (c *Client) leases() dynamic.ResourceInterface {
	return c.objects.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(metav1.NamespaceSystem)
}

// Take takes the lease, or keeps it, and reports whether the holder has it. It does not wait.
func (c *Client) Take(ctx context.Context, l Lease) (bool, error) {
	err := l.take(ctx, c.leases())
	switch {
	case err == nil:
		return true, nil
	case others(err):
		return false, nil
	}
	return false, fmt.Errorf("taking the lease %s: %w", l.Name, err)
}

// others reports whether somebody else has the lease, or has just taken it.
func others(err error) bool {
	return errors.Is(err, errHeld) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// Alone calls do while nobody else has the lease, for which it waits until ctx ends.
func (c *Client) Alone(ctx context.Context, l Lease, do func(context.Context) error) error {
	leases := c.leases()
	for {
		err := l.take(ctx, leases)
		if err == nil {
			break
		}
		if !others(err) {
			return fmt.Errorf("taking the lease %s: %w", l.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the lease %s: %w, and %w", l.Name, err, ctx.Err())
		case <-time.After(leasePoll):
		}
	}
	if err := do(ctx); err != nil {
		return errors.Join(err, l.give(ctx, leases))
	}
	return l.give(ctx, leases)
}

func (l Lease) take(ctx context.Context, leases dynamic.ResourceInterface) error {
	now := time.Now().UTC()
	spec := map[string]any{"holderIdentity": l.Holder, "leaseDurationSeconds": int64(l.Life / time.Second),
		"acquireTime": now.Format(metav1.RFC3339Micro), "renewTime": now.Format(metav1.RFC3339Micro)}
	have, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": l.Name}, "spec": spec}}, metav1.CreateOptions{FieldManager: Manager})
		return err
	}
	if err != nil {
		return err
	}
	holder, _, _ := unstructured.NestedString(have.Object, "spec", "holderIdentity")
	text, _, _ := unstructured.NestedString(have.Object, "spec", "renewTime")
	seconds, _, _ := unstructured.NestedInt64(have.Object, "spec", "leaseDurationSeconds")
	since, err := time.Parse(metav1.RFC3339Micro, text) // one that cannot be read has ended
	if err == nil && holder != l.Holder && now.Before(since.Add(time.Duration(seconds)*time.Second)) {
		return fmt.Errorf("%w by %s since %s", errHeld, holder, text)
	}
	have.Object["spec"] = spec
	_, err = leases.Update(ctx, have, metav1.UpdateOptions{FieldManager: Manager})
	return err
}

// give deletes the lease, unless somebody else has taken it meanwhile.
func (l Lease) give(ctx context.Context, leases dynamic.ResourceInterface) error {
	have, err := leases.Get(ctx, l.Name, metav1.GetOptions{})
	if err == nil {
		if holder, _, _ := unstructured.NestedString(have.Object, "spec", "holderIdentity"); holder != l.Holder {
			return nil
		}
		version := have.GetResourceVersion()
		err = leases.Delete(ctx, l.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
