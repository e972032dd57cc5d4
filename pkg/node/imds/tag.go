package imds

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// tagTime bounds the questions about a tag.
const tagTime = 30 * time.Second

// Tag asks for a tag of the instance. An empty value comes with why there is none. An error is of the service: it did not
// answer within half a minute, or refuses.
func (c *Client) Tag(ctx context.Context, key string) (value, why string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tagTime, fmt.Errorf("not within %v", tagTime))
	defer cancel()
	data, err := c.Get(ctx, "meta-data/tags/instance/"+key)
	switch {
	case err == nil:
		return string(data), "", nil
	case !errors.Is(err, ErrNotFound):
		return "", "", err
	}
	switch _, err := c.Get(ctx, "meta-data/tags/instance"); {
	case errors.Is(err, ErrNotFound):
		return "", "its metadata show no tags", nil
	case err != nil:
		return "", "", err
	}
	return "", "it has no tag " + key, nil
}
