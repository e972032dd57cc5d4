package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
)

// Ask sends the request to the addresses of the URL's host, one after the other, until one answers, and returns the
// body of an answer 200. Any other status is an error, and other addresses are not tried then.
func (c *Client) Ask(ctx context.Context, r Request) ([]byte, error) {
	addrs, err := resolve(ctx, r.URL)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, at := range addrs {
		body, err := c.Do(ctx, r, at)
		var status *StatusError
		if err == nil || errors.As(err, &status) && status.Code < 500 {
			return body, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", at.Addr(), err))
	}
	return nil, errors.Join(errs...)
}

func resolve(ctx context.Context, target *url.URL) ([]netip.AddrPort, error) {
	port := uint64(443)
	if target.Scheme == "http" {
		port = 80
	}
	if text := target.Port(); text != "" {
		var err error
		if port, err = strconv.ParseUint(text, 10, 16); err != nil {
			return nil, err
		}
	}
	host := target.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(addr, uint16(port))}, nil
	}
	addrs, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, reason.With(reason.DNS, err)
	}
	var out []netip.AddrPort
	for _, a := range addrs {
		out = append(out, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return out, nil
}

// Get requests a URL as Ask does.
func (c *Client) Get(ctx context.Context, target *url.URL) ([]byte, error) {
	return c.Ask(ctx, Request{URL: target})
}

// Patch merges JSON into the object at the URL (RFC 7386).
func (c *Client) Patch(ctx context.Context, target *url.URL, body string) error {
	_, err := c.Ask(ctx, Request{Method: "PATCH", URL: target, ContentType: "application/merge-patch+json", Body: body})
	return err
}
