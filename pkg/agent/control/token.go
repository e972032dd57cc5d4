package control

import (
	"context"
	"encoding/base64"
	"errors"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Token sees to it that the store has a bootstrap token that the API server knows, and makes another at half its life.
// The old one is good until its own end, so that a machine which has just read it gets in. The API server is told
// first: a token that machines find in the store works.
func (c *Controller) Token(ctx context.Context) error {
	token, err := c.stored(ctx)
	if err != nil {
		return err
	}
	fresh := token.ID == "" || token.Due(c.Now())
	if fresh {
		token = pki.NewToken(c.Now())
	}
	// Also where it is not new: an API server that has lost its data must know it again.
	if err := c.Objects.Apply(ctx, secret(token)); err != nil {
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
	c.Log.Info("a new bootstrap token", "token", token.String(), "expires", token.Expires)
	return nil
}

// stored is the token in the store, or the zero Token where there is none that can be read.
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

// secret is the token as the API server's bootstrap authenticator finds it. The controller manager's token cleaner
// deletes it when it has expired.
func secret(t pki.Token) map[string]any {
	text := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	return map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
		"metadata": map[string]any{"name": "bootstrap-token-" + t.ID, "namespace": "kube-system"},
		"data": map[string]any{
			"token-id": text(t.ID), "token-secret": text(t.Secret),
			"expiration":                     text(t.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": text("true"),
			"auth-extra-groups":              text(pki.GroupBootstrappers),
			"description":                    text("how Hardtack's machines ask for their first certificate"),
		},
	}
}
