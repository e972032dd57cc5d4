package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/member"
)

// Files are the certificates of a member's machine, as PEM files. They are renewed, and their authorities replaced, while
// programs run.
type Files struct {
	// CA has the authorities of etcd's servers; Certificate and Key are the caller's own.
	CA, Certificate, Key string
}

// Peer returns the member at a client URL. It reads the files for each question, and asks by a connection of its own: that
// shows who answers there now.
func (f Files) Peer(url string) member.Peer { return peer{f, url} }

type peer struct {
	files Files
	url   string
}

// ask asks with a client of this moment's certificates.
func (p peer) ask(question func(*Client) error) error {
	config, err := p.files.tls(p.url)
	if err != nil {
		return fmt.Errorf("asking etcd at %s: %w", p.url, err)
	}
	client := New(Config{URL: p.url, TLS: config})
	defer client.Close()
	return question(client)
}

func (f Files) tls(at string) (*tls.Config, error) {
	target, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	authorities, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("%s has no certificate", f.CA)
	}
	host := target.Hostname()
	// Only this machine itself answers at an address of its loopback, and each of its certificates is for this name.
	if address, err := netip.ParseAddr(host); err == nil && address.IsLoopback() {
		host = "localhost"
	}
	return &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, nil
}

func (p peer) Members(ctx context.Context) (list etcd.List, err error) {
	err = p.ask(func(c *Client) (err error) { list, err = c.Members(ctx); return err })
	return list, err
}

func (p peer) Status(ctx context.Context) (status member.Status, err error) {
	err = p.ask(func(c *Client) (err error) { status, err = c.Status(ctx); return err })
	return status, err
}

func (p peer) Read(ctx context.Context) error {
	return p.ask(func(c *Client) error { return c.Read(ctx) })
}

func (p peer) AddLearner(ctx context.Context, peerURL string) (id etcd.ID, err error) {
	err = p.ask(func(c *Client) (err error) { id, err = c.AddLearner(ctx, peerURL); return err })
	return id, err
}

func (p peer) Remove(ctx context.Context, id etcd.ID) error {
	return p.ask(func(c *Client) error { return c.Remove(ctx, id) })
}

func (p peer) Promote(ctx context.Context, id etcd.ID) error {
	return p.ask(func(c *Client) error { return c.Promote(ctx, id) })
}

func (p peer) Update(ctx context.Context, id etcd.ID, peerURL string) error {
	return p.ask(func(c *Client) error { return c.Update(ctx, id, peerURL) })
}

func (p peer) Lock(ctx context.Context, holder string, ttl time.Duration) (lease member.Lease, err error) {
	err = p.ask(func(c *Client) (err error) { lease, err = c.Lock(ctx, holder, ttl); return err })
	return lease, err
}

func (p peer) Renew(ctx context.Context, lease member.Lease) error {
	return p.ask(func(c *Client) error { return c.Renew(ctx, lease) })
}

func (p peer) Unlock(ctx context.Context, lease member.Lease) error {
	return p.ask(func(c *Client) error { return c.Unlock(ctx, lease) })
}

func (p peer) Snapshot(ctx context.Context, w io.Writer) error {
	return p.ask(func(c *Client) error { return c.Snapshot(ctx, w) })
}

func (p peer) Defragment(ctx context.Context) error {
	return p.ask(func(c *Client) error { return c.Defragment(ctx) })
}

func (p peer) Compact(ctx context.Context) error {
	return p.ask(func(c *Client) error { return c.Compact(ctx) })
}

func (p peer) Disarm(ctx context.Context, id etcd.ID) error {
	return p.ask(func(c *Client) error { return c.Disarm(ctx, id) })
}
