// Package registry keeps the credentials of container registries in a cluster's store, and answers a kubelet that asks for them.
//
// Its rule: a password goes into the store and to the kubelet, and nowhere else: no result, log line or error has it.
package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Store is what this package needs of a cluster's store (pkg/pki/store.Store).
type Store interface {
	Reader
	GetAll(ctx context.Context, objects ...string) (map[string][]byte, error)
	Put(ctx context.Context, object string, content []byte) error
	List(ctx context.Context, dir string) ([]string, error)
	Delete(ctx context.Context, object string) error
}

// Reader reads one object. Errors are the store's (pki.ErrNotFound and its like).
type Reader interface {
	Get(ctx context.Context, object string) ([]byte, error)
	String() string
}

// Action is what a command does to credentials.
type Action string

// The actions. Keep is of credentials that are as they should be.
const (
	Create  Action = "create"
	Replace Action = "replace"
	Keep    Action = "keep"
	Delete  Action = "delete"
)

// Change is what was done to the credentials of a registry, or would be.
type Change struct {
	Registry string `json:"registry"`
	// Username is the user whose credentials are there afterwards, or were there before they were deleted.
	Username string `json:"username"`
	Action   Action `json:"action"`
	Store    string `json:"store"`
	DryRun   bool   `json:"dry_run"`
}

// Login puts credentials of a registry into the store. With dry it only says what it would do.
func Login(ctx context.Context, s Store, host string, c pki.RegistryCredentials, dry bool) (Change, error) {
	change := Change{Registry: host, Username: c.Username, Action: Create, Store: s.String(), DryRun: dry}
	content, err := c.Encode()
	if err != nil {
		return change, fmt.Errorf("registry %s: %w", host, err)
	}
	object := pki.RegistryObject(host)
	old, err := s.Get(ctx, object)
	switch {
	case errors.Is(err, pki.ErrNotFound):
	case err != nil:
		return change, err
	case string(old) == string(content):
		change.Action = Keep
		return change, nil
	default:
		change.Action = Replace
	}
	if dry {
		return change, nil
	}
	return change, s.Put(ctx, object, content)
}

// Logout deletes the credentials of a registry. With dry it only says what it would do.
func Logout(ctx context.Context, s Store, host string, dry bool) (Change, error) {
	change := Change{Registry: host, Action: Delete, Store: s.String(), DryRun: dry}
	object := pki.RegistryObject(host)
	content, err := s.Get(ctx, object)
	if err != nil {
		return change, err
	}
	if c, err := pki.ParseRegistryCredentials(content); err == nil { // others go too
		change.Username = c.Username
	}
	if dry {
		return change, nil
	}
	return change, s.Delete(ctx, object)
}

// State is how the credentials of a registry are.
type State string

// The states of credentials.
const (
	// Kept: the store has them, and machines of the document ask for them.
	Kept State = "kept"
	// Missing: machines of the document ask for them, and the store has none.
	Missing State = "missing"
	// Unused: the store has them, and the document does not say so.
	Unused State = "unused"
	// Broken: the store has something else.
	Broken State = "broken"
)

// Item is the state of the credentials of one registry.
type Item struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	// State is empty for credentials that are there, where no document is known.
	State   State  `json:"state"`
	Problem string `json:"problem,omitempty"`
}

// List returns the registries whose credentials the store has, and those that a document says so of; known says that there is a
// document.
func List(ctx context.Context, s Store, document []string, known bool) ([]Item, error) {
	objects, err := s.List(ctx, role.Registries)
	if err != nil {
		return nil, err
	}
	contents, err := s.GetAll(ctx, objects...)
	if err != nil {
		return nil, err
	}
	items := []Item{}
	for _, object := range objects {
		item := Item{Registry: pki.RegistryOf(object)}
		if known {
			item.State = Unused
		}
		if slices.Contains(document, item.Registry) {
			item.State = Kept
		}
		c, err := pki.ParseRegistryCredentials(contents[object])
		if err != nil {
			item.State, item.Problem = Broken, err.Error()
		}
		item.Username = c.Username
		items = append(items, item)
	}
	for _, host := range document {
		if !slices.Contains(objects, pki.RegistryObject(host)) {
			items = append(items, Item{Registry: host, State: Missing})
		}
	}
	slices.SortFunc(items, func(a, b Item) int { return strings.Compare(a.Registry, b.Registry) })
	return items, nil
}
