package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// wireSocket is where the region's APIs answer the daemon's own calls. Machines reach the same handler at
// AWSAddress.
const wireSocket = "aws.sock"

// endpoint is the URL of the region's APIs behind wire; the name is never looked up.
const endpoint = "http://region.lab"

// wire serves an HTTP handler on a Unix socket of the lab's directory, and connects to it.
type wire struct {
	server *http.Server
	client *http.Client
	done   chan struct{}
}

// newWire listens; close ends it.
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
	_ = w.server.Close() // its listeners and connections; what they answer by then is lost to nobody
	<-w.done
	w.client.CloseIdleConnections()
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// listen listens on a socket of the directory, in place of one that a killed daemon has left.
func (h Home) listen(name string) (net.Listener, dialer, error) {
	dir, closed, err := h.short()
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
	// The path that it knows is of a descriptor which may be another directory's by then.
	l.SetUnlinkOnClose(false)
	return l, h.dialer(name), nil
}

// dialer connects to a socket of the directory, whatever address is asked for.
func (h Home) dialer(name string) dialer {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		dir, closed, err := h.short()
		if err != nil {
			return nil, errors.Join(ErrNotRunning, err)
		}
		defer closed()
		return (&net.Dialer{}).DialContext(ctx, "unix", dir+"/"+name)
	}
}

// principal is the SDK's configuration for calls by somebody with this access key.
func (w *wire) principal(region string, key aws.Credentials) aws.Config {
	return aws.Config{
		Region: region, BaseEndpoint: aws.String(endpoint), HTTPClient: w.client,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return key, nil }),
	}
}
