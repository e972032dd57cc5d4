package kube

import (
	"context"
	"fmt"
)

// Ready is an error where the API server says that it is not ready: its own checks, etcd's among them, do not all pass.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.get(ctx, "/readyz"); err != nil {
		return fmt.Errorf("asking %s whether it is ready: %w", c.host, err)
	}
	return nil
}
