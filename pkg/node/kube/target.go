package kube

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
)

// Addresses returns the addresses of the pods of kube-system with the label k8s-app=app, by their names; of those without one, the zero
// address.
func (c *Client) Addresses(ctx context.Context, app string) (map[string]netip.Addr, error) {
	var list struct {
		Items []struct {
			Metadata meta `json:"metadata"`
			Status   struct {
				PodIP string `json:"podIP"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := c.Read(ctx, "/api/v1/namespaces/kube-system/pods?resourceVersion=0&labelSelector="+url.QueryEscape("k8s-app="+app), &list); err != nil {
		return nil, fmt.Errorf("listing the pods of %s: %w", app, err)
	}
	found := map[string]netip.Addr{}
	for _, o := range list.Items {
		ip, err := netip.ParseAddr(o.Status.PodIP)
		if err != nil {
			ip = netip.Addr{} // it has none yet
		}
		found[o.Metadata.Name] = ip
	}
	return found, nil
}

// Addresses is Client.Addresses.
func (f *File) Addresses(ctx context.Context, app string) (map[string]netip.Addr, error) {
	return ask(f, func(c *Client) (map[string]netip.Addr, error) { return c.Addresses(ctx, app) })
}
