package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxAnswer bounds a response that is not a list of objects, in bytes. The list of core/v1's kinds has 10 kB.
const maxAnswer = 1 << 20

// maxReason bounds the part of the response that an error shows, in bytes.
const maxReason = 4 << 10

// get reads a small response.
func (c *Client) get(ctx context.Context, path string) (body []byte, err error) {
	err = c.read(ctx, path, func(r io.Reader) (err error) {
		body, err = io.ReadAll(io.LimitReader(r, maxAnswer))
		return err
	})
	return body, err
}

// Read reads the JSON of a path of the API server into a value, of any size: a list of thousands of nodes has tens of megabytes. It
// reads it to its end, since the API server logs an answer of which the last byte, a new line, was left as a fault of its own.
func (c *Client) Read(ctx context.Context, path string, value any) error {
	return c.read(ctx, path, func(r io.Reader) error {
		if err := json.NewDecoder(r).Decode(value); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, io.LimitReader(r, maxReason))
		return err
	})
}

func (c *Client) read(ctx context.Context, path string, use func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.host+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json, */*")
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	if answer.StatusCode != http.StatusOK {
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxReason))
		return errors.Join(fmt.Errorf("%s: %s", answer.Status, strings.TrimSpace(string(text))), err)
	}
	return use(answer.Body)
}

func isSub(resource string) bool { return strings.Contains(resource, "/") }
