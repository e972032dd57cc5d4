package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// dialling is how long a connection to one API server of several may take.
const dialling = 5 * time.Second

// Everywhere gets a path from every API server behind the kubeconfig's server, which are the addresses of its name, and calls got
// with the address and port of each, and with its answer or why there is none. The error is that of looking up the name.
func (c *Client) Everywhere(ctx context.Context, path string, got func(address string, body []byte, err error)) error {
	server, err := url.Parse(c.host)
	if err != nil {
		return fmt.Errorf("reading the server of the kubeconfig: %w", err)
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, server.Hostname())
	if err != nil {
		return err
	}
	for _, address := range addresses {
		address = net.JoinHostPort(address, port)
		body, err := c.getAt(ctx, address, path)
		got(address, body, err)
	}
	return nil
}

func (c *Client) getAt(ctx context.Context, address, path string) ([]byte, error) {
	config := rest.CopyConfig(c.config)
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialling}).DialContext(ctx, network, address)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}
