package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Where bootstrap tokens are, and what their names begin with, as the API server's authenticator defines it.
const (
	tokenNamespace = metav1.NamespaceSystem
	tokenPrefix    = "bootstrap-token-"
	tokenType      = "bootstrap.kubernetes.io/token"
)

var _ controller.Tokens = (*Client)(nil)

// Tokens lists the bootstrap tokens that are for one machine, without their secrets. One whose expiration cannot be read,
// which the API server refuses too, has expired.
func (c *Client) Tokens(ctx context.Context) ([]controller.MachineToken, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name        string            `json:"name"`
				Version     string            `json:"resourceVersion"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Data struct {
				Groups  []byte `json:"auth-extra-groups"`
				Expires []byte `json:"expiration"`
			} `json:"data"`
		} `json:"items"`
	}
	if err := c.Read(ctx, "/api/v1/namespaces/"+tokenNamespace+"/secrets?fieldSelector="+url.QueryEscape("type="+tokenType), &list); err != nil {
		return nil, fmt.Errorf("listing bootstrap tokens: %w", err)
	}
	var out []controller.MachineToken
	for _, o := range list.Items {
		groups := pki.MachineGroups(strings.Split(string(o.Data.Groups), ","))
		if len(groups) == 0 {
			continue
		}
		expires, err := time.Parse(time.RFC3339, string(o.Data.Expires))
		if err != nil {
			expires = time.Time{}
		}
		out = append(out, controller.MachineToken{ID: strings.TrimPrefix(o.Metadata.Name, tokenPrefix), Groups: groups, Expires: expires,
			User: o.Metadata.Annotations[controller.AnnotationUser], Version: o.Metadata.Version})
	}
	return out, nil
}

// Use writes into a token who has used it, and when it expires, unless it has changed since it was read.
func (c *Client) Use(ctx context.Context, t controller.MachineToken) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": t.Version, "annotations": map[string]string{controller.AnnotationUser: t.User}},
		"data":     map[string]string{"expiration": base64.StdEncoding.EncodeToString([]byte(t.Expires.UTC().Format(time.RFC3339)))},
	})
	if err != nil {
		return err
	}
	_, err = c.objects.Resource(secretsResource).Namespace(tokenNamespace).Patch(ctx, tokenPrefix+t.ID, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: Manager})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("using the bootstrap token %s: %w: %w", t.ID, controller.ErrChanged, err)
	}
	if err != nil {
		return fmt.Errorf("using the bootstrap token %s: %w", t.ID, err)
	}
	return nil
}
