package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds what is read of an answer that is no object, in bytes. The list of core/v1's kinds has 10 kB.
const maxAnswer = 1 << 20

// Ready asks whether the API server is ready to serve: nil, or what it says instead.
func (c *Client) Ready(ctx context.Context) error {
	if _, err := c.get(ctx, "/readyz"); err != nil {
		return fmt.Errorf("asking the API server whether it is ready: %w", err)
	}
	return nil
}

// get reads what is not an object.
func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(body)))
	}
	return body, nil
}

func isSub(resource string) bool { return strings.Contains(resource, "/") }
