package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// File is a client whose kubeconfig changes, since the certificates in it are renewed: every call uses the current
// file. It is safe for concurrent use.
type File struct {
	path string

	mu     sync.Mutex
	text   []byte
	client *Client
}

// NewFile returns the client of a kubeconfig, which need not exist yet. The path may be a list, as KUBECONFIG has it: what is in an
// earlier file goes before what is in a later one, and a file that is missing is left out, unless all are.
func NewFile(path string) *File { return &File{path: path} }

// Client returns a client for the current kubeconfig; it is reused while the file is unchanged.
func (f *File) Client() (*Client, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.read()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if f.client != nil && bytes.Equal(text, f.text) {
		return f.client, nil
	}
	// The loading rules read the files again, since only they resolve relative paths in them. A change in between is noticed at
	// the next call.
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(f.path)}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", f.path, err)
	}
	client, err := New(config)
	if err != nil {
		return nil, err
	}
	f.text, f.client = text, client
	return client, nil
}

// read returns the text of all files that are there.
func (f *File) read() (all []byte, err error) {
	found := false
	for _, path := range filepath.SplitList(f.path) {
		text, failed := os.ReadFile(path)
		switch {
		case failed == nil:
			all, found = append(all, text...), true
		case !errors.Is(failed, fs.ErrNotExist):
			return nil, failed
		case err == nil:
			err = failed
		}
	}
	if found {
		return all, nil
	}
	return nil, cmp.Or(err, fs.ErrNotExist)
}

var (
	_ controller.Nodes    = (*File)(nil)
	_ controller.Requests = (*File)(nil)
	_ controller.Objects  = (*File)(nil)
	_ controller.Tokens   = (*File)(nil)
)

// Apply is Client.Apply.
func (f *File) Apply(ctx context.Context, object map[string]any) error {
	return f.do(func(c *Client) error { return c.Apply(ctx, object) })
}

// Delete is Client.Delete.
func (f *File) Delete(ctx context.Context, object map[string]any) error {
	return f.do(func(c *Client) error { return c.Delete(ctx, object) })
}

// Nodes is Client.Nodes.
func (f *File) Nodes(ctx context.Context) ([]controller.Node, error) {
	return ask(f, func(c *Client) ([]controller.Node, error) { return c.Nodes(ctx) })
}

// Label is Client.Label.
func (f *File) Label(ctx context.Context, node string, labels map[string]string) error {
	return f.do(func(c *Client) error { return c.Label(ctx, node, labels) })
}

// Remove is Client.Remove.
func (f *File) Remove(ctx context.Context, node controller.Node) error {
	return f.do(func(c *Client) error { return c.Remove(ctx, node) })
}

// Tell is Client.Tell.
func (f *File) Tell(ctx context.Context, node controller.Node, a controller.Answer) error {
	return f.do(func(c *Client) error { return c.Tell(ctx, node, a) })
}

// Masters is Client.Masters.
func (f *File) Masters(ctx context.Context) ([]netip.Addr, error) {
	return ask(f, func(c *Client) ([]netip.Addr, error) { return c.Masters(ctx) })
}

// Requests is Client.Requests.
func (f *File) Requests(ctx context.Context) ([]controller.Request, error) {
	return ask(f, func(c *Client) ([]controller.Request, error) { return c.Requests(ctx) })
}

// Approve is Client.Approve.
func (f *File) Approve(ctx context.Context, request, why string) error {
	return f.do(func(c *Client) error { return c.Approve(ctx, request, why) })
}

// Undecided is Client.Undecided.
func (f *File) Undecided(ctx context.Context, request, why string) error {
	return f.do(func(c *Client) error { return c.Undecided(ctx, request, why) })
}

// Tokens is Client.Tokens.
func (f *File) Tokens(ctx context.Context) ([]controller.MachineToken, error) {
	return ask(f, func(c *Client) ([]controller.MachineToken, error) { return c.Tokens(ctx) })
}

// Use is Client.Use.
func (f *File) Use(ctx context.Context, t controller.MachineToken) error {
	return f.do(func(c *Client) error { return c.Use(ctx, t) })
}

// Watch is Client.Watch.
func (f *File) Watch(ctx context.Context, came func()) error {
	return f.do(func(c *Client) error { return c.Watch(ctx, came) })
}

func (f *File) do(call func(*Client) error) error {
	c, err := f.Client()
	if err != nil {
		return err
	}
	return call(c)
}

func ask[T any](f *File, call func(*Client) (T, error)) (answer T, err error) {
	err = f.do(func(c *Client) error {
		answer, err = call(c)
		return err
	})
	return answer, err
}
