package kube

import (
	"context"
	"fmt"
)

// Ready returns nil if the API server is ready: all its own checks pass, etcd's among them.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.get(ctx, "/readyz"); err != nil {
		return fmt.Errorf("asking %s whether it is ready: %w", c.host, err)
	}
	return nil
}
