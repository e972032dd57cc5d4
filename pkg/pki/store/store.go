// Package store stores a cluster's secrets in AWS's Parameter Store or in a directory.
//
// Its rule: an object appears whole or not at all, and Create never replaces an object. Both stores pass the same suite,
// pkg/pki/store/storetest.
package store

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Store holds the objects of one cluster by path ("masters/kubernetes-ca.crt"). It is safe for concurrent use, by
// several processes too. Every error names the object, and matches at most one of pki's ErrNotFound, ErrForbidden,
// ErrExists, ErrChanged and ErrUnreachable.
type Store interface {
	// Get returns an object's content.
	Get(ctx context.Context, object string) ([]byte, error)
	// GetAll returns the contents of several objects by their paths, with as few requests as the store allows: each takes from
	// a quota that all machines share. Objects that do not exist are missing in the result. With
	// an error the result has what was read before it.
	GetAll(ctx context.Context, objects ...string) (map[string][]byte, error)
	// Create creates an object. If it exists, the error matches pki.ErrExists and nothing changes; of several concurrent
	// calls exactly one succeeds.
	Create(ctx context.Context, object string, content []byte) error
	// Put creates or replaces an object: readers see the old content or the new.
	Put(ctx context.Context, object string, content []byte) error
	// Swap replaces an object that still has the content old; if it has another, the error matches pki.ErrChanged. Callers
	// at once do not replace each other's content unnoticed: in a directory exactly one succeeds. Parameter Store has no
	// conditional write: there, of two calls within the same moment both write, and the later one gets pki.ErrChanged.
	Swap(ctx context.Context, object string, old, content []byte) error
	// List returns the objects below a directory, a path that ends in "/", sorted. Where there is no such directory there are
	// none.
	List(ctx context.Context, dir string) ([]string, error)
	// Delete deletes an object, and what the store has kept of its earlier contents.
	Delete(ctx context.Context, object string) error
	// String returns the location: "dir:/path", "ssm:/hardtack/demo".
	String() string
}

// The kinds of stores, the prefixes of locations.
const (
	KindDir = "dir"
	KindSSM = "ssm"
)

// Location is the parsed location of a store.
type Location struct {
	// Kind is KindDir or KindSSM, and Root an absolute, clean path.
	Kind, Root string
}

// ParseLocation parses "dir:/path" or "ssm:/hardtack/<cluster>".
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

// checkObject rejects a path that leads out of the store.
func checkObject(object string) error {
	if !fs.ValidPath(object) || object == "." {
		return fmt.Errorf("object %q: not a path below the store's root", object)
	}
	return nil
}
