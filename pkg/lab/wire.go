package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// wireSocket serves the region's APIs to the daemon itself. Machines reach the same handler at awsAddress.
const wireSocket = "aws.sock"

// endpoint is the URL of the region's APIs behind wire. Its host name is never resolved.
const endpoint = "http://region.lab"

// wire serves an HTTP handler on a Unix socket of the lab's directory, and connects to it.
type wire struct {
	server *http.Server
	client *http.Client
	done   chan struct{}
}

// newWire listens and serves; close ends it.
func (h Home) newWire(name string, handler http.Handler) (*wire, error) {
	l, dial, err := h.listen(name)
	if err != nil {
		return nil, err
	}
	w := &wire{
		server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute},
		client: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 16}},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(w.done)
		_ = w.server.Serve(l) // always an error: that it was closed
	}()
	return w, nil
}

func (w *wire) close() {
	_ = w.server.Close() // closes its listeners and connections
	<-w.done
	w.client.CloseIdleConnections()
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// listen listens on a socket in the directory, and replaces one that a killed daemon left.
func (h Home) listen(name string) (net.Listener, dialer, error) {
	dir, closed, err := h.shortPath()
	if err != nil {
		return nil, nil, err
	}
	defer closed()
	if err := removeFile(h.path(name)); err != nil {
		return nil, nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/" + name, Net: "unix"})
	if err != nil {
		return nil, nil, fmt.Errorf("listening on %s: %w", h.path(name), err)
	}
	// The listener knows the path through a descriptor, which may belong to another directory by then.
	l.SetUnlinkOnClose(false)
	return l, h.dialer(name), nil
}

// dialer returns a function that connects to a socket in the directory, whatever address is asked for.
func (h Home) dialer(name string) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		dir, closed, err := h.shortPath()
		if err != nil {
			return nil, errors.Join(ErrNotRunning, err)
		}
		defer closed()
		return (&net.Dialer{}).DialContext(ctx, "unix", dir+"/"+name)
	}
}

// principal returns the SDK's configuration for calls with this access key.
func (w *wire) principal(region string, key aws.Credentials) aws.Config {
	return aws.Config{
		Region: region, BaseEndpoint: aws.String(endpoint), HTTPClient: awshttp.Client(w.client),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return key, nil }),
	}
}
