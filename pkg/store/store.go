// Package store keeps a cluster's secrets: in AWS's Parameter Store, or in a directory.
//
// Its rule: an object appears whole or not at all, and what Create has made nobody's Create replaces. Both stores pass
// the same suite, pkg/store/storetest.
package store

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Store is one cluster's objects, by path ("masters/kubernetes-ca.crt"). It is safe for concurrent use, also by
// several processes. Every error names the object, and matches at most one of pki's ErrNotFound, ErrForbidden,
// ErrExists and ErrUnreachable.
type Store interface {
	// Get returns an object's content.
	Get(ctx context.Context, object string) ([]byte, error)
	// Create makes an object that is not there. Where it is, the error matches pki.ErrExists and nothing has changed;
	// of several callers at once exactly one succeeds.
	Create(ctx context.Context, object string, content []byte) error
	// Put makes or replaces an object: readers see the old content or the new.
	Put(ctx context.Context, object string, content []byte) error
	// String is the location: "dir:/path", "ssm:/hardtack/demo".
	String() string
}

// The kinds of stores, as a location begins.
const (
	KindDir = "dir"
	KindSSM = "ssm"
)

// Location is where a store is, taken apart.
type Location struct {
	// Kind is KindDir or KindSSM, and Root an absolute, clean path.
	Kind, Root string
}

// ParseLocation reads "dir:/path" or "ssm:/hardtack/<cluster>".
func ParseLocation(text string) (Location, error) {
	kind, root, ok := strings.Cut(text, ":")
	if !ok || kind != KindDir && kind != KindSSM {
		return Location{}, fmt.Errorf("store %q: not of the form ssm:/hardtack/<cluster> or dir:/path", text)
	}
	if !path.IsAbs(root) || path.Clean(root) != root || root == "/" {
		return Location{}, fmt.Errorf("store %q: %q is not an absolute, clean path below the root", text, root)
	}
	return Location{Kind: kind, Root: root}, nil
}

func (l Location) String() string { return l.Kind + ":" + l.Root }

// checkObject refuses a path that would lead out of the store.
func checkObject(object string) error {
	if !fs.ValidPath(object) || object == "." {
		return fmt.Errorf("object %q: not a path below the store's root", object)
	}
	return nil
}
