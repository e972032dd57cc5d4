package controller

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Token makes sure that the store has a bootstrap token that the API server accepts, and replaces it at half its life.
// The old one stays valid until it expires, so that a machine that has just read it can join. The API server gets a new
// token before the store does: a token that machines read from the store always works.
func (c *Controller) Token(ctx context.Context) error {
	token, err := c.stored(ctx)
	if err != nil {
		return err
	}
	fresh := token.ID == "" || token.Due(c.Now())
	if fresh {
		if c.made.ID == "" || c.made.Due(c.Now()) {
			c.made = pki.NewToken(c.Now())
		}
		token = c.made
	}
	// Also if the token is not new: an API server that lost its data must get it again.
	if err := c.Objects.Apply(ctx, Secret(token, pki.GroupBootstrappers)); err != nil {
		return err
	}
	if !fresh {
		return nil
	}
	data, err := token.Marshal()
	if err != nil {
		return err
	}
	if err := c.Secrets.Put(ctx, pki.BootstrapToken, data); err != nil {
		return err
	}
	c.made = pki.Token{}
	c.Log.Info("a new bootstrap token", "token", token.String(), "expires", token.Expires)
	return nil
}

// stored returns the token in the store, or the zero Token if there is none or it is unreadable.
func (c *Controller) stored(ctx context.Context) (pki.Token, error) {
	data, err := c.Secrets.Get(ctx, pki.BootstrapToken)
	if errors.Is(err, pki.ErrNotFound) {
		return pki.Token{}, nil
	}
	if err != nil {
		return pki.Token{}, err
	}
	token, err := pki.ParseToken(data)
	if err != nil {
		c.Log.Warn("replacing a bootstrap token that cannot be read", "error", err)
		return pki.Token{}, nil
	}
	return token, nil
}

// Secret returns the Secret that the API server's bootstrap authenticator reads. Who has the token is in those groups. The
// controller manager's token cleaner deletes it when it has expired.
func Secret(t pki.Token, groups ...string) map[string]any {
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]any{"name": "bootstrap-token-" + t.ID, "namespace": "kube-system"},
		"data": map[string]any{
			"token-id": text(t.ID), "token-secret": text(t.Secret),
			"expiration":                     text(t.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": text("true"),
			"auth-extra-groups":              text(strings.Join(groups, ",")),
			"description":                    text("how Hardtack's machines ask for their first certificate"),
		},
	}
}
