package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/cloudformation"
	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// KeyStack is the name of the stack with the key of a cluster's secrets.
func KeyStack(cluster string) string { return "hardtack-key-" + cluster }

// MakeKey creates or updates the stack with the key of the secrets, and returns the key's ARN; empty if the document wants
// no such key. If the alias of the key of an earlier stack is still there, the error is a *KeptKeyError.
func (c *Cluster) MakeKey(ctx context.Context) (string, error) {
	if c.config.Document.Cluster.AWS.SecretsKey != spec.SecretsKeyStack {
		return "", nil
	}
	body, err := template.Key(c.config.Document).YAML()
	if err != nil {
		return "", err
	}
	plan, err := c.stacks.Propose(ctx, cloudformation.Proposal{Stack: KeyStack(c.name), Template: string(body)})
	if err != nil {
		return "", err
	}
	now, err := c.stacks.Execute(ctx, plan)
	if failure, ok := errors.AsType[*cloudformation.Failure](err); ok && failure.Type == "AWS::KMS::Alias" && strings.Contains(failure.Reason, "already exists") {
		err = errors.Join(&KeptKeyError{Alias: c.config.Document.SecretsKey()}, err)
	}
	if err != nil {
		return "", fmt.Errorf("making the key of the secrets: %w", err)
	}
	return now.Outputs[template.OutputKey], nil
}

// Rekey makes the document's key that of the store, and writes every secret again that has another; see store.SSM.Rekey.
// It never leaves the machines of a stack without the secrets: it fails with a *KeyNotAppliedError while their roles may
// not use the new key, and with a *KeyChangeError from one customer key to another, of which they may use one.
func (c *Cluster) Rekey(ctx context.Context, secrets *store.SSM, told func(done, all int)) error {
	want := cmp.Or(c.config.Document.SecretsKey(), store.DefaultKey)
	have, err := secrets.Key(ctx)
	if err != nil {
		return err
	}
	if want != store.DefaultKey {
		if have != store.DefaultKey && have != want {
			return &KeyChangeError{Have: have, Want: want}
		}
		now, err := c.describe(ctx)
		if err != nil {
			return err
		}
		if now.Made() && now.Outputs[template.OutputSecretsKey] != want {
			return &KeyNotAppliedError{Stack: c.stack, Key: want}
		}
	}
	if have != want {
		if err := secrets.SetKey(ctx, want); err != nil {
			return err
		}
	}
	return secrets.Rekey(ctx, told)
}

// checkKey refuses a template whose roles could no longer read the secrets.
func (c *Cluster) checkKey(ctx context.Context, secrets *store.SSM) error {
	have, err := secrets.Key(ctx)
	if err == nil && have != store.DefaultKey && have != c.config.Document.SecretsKey() {
		err = &KeyChangeError{Have: have, Want: cmp.Or(c.config.Document.SecretsKey(), store.DefaultKey)}
	}
	return err
}
