package kube

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

// Joiner is a client that has a bootstrap token alone, and can ask for a certificate.
type Joiner struct{ client *Client }

var _ certs.Joiner = (*Joiner)(nil)

// NewJoiner returns the client of a server whose certificate is signed by the CA, which is PEM.
func NewJoiner(server string, ca []byte, token string) (*Joiner, error) {
	c, err := New(&rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		return nil, err
	}
	return &Joiner{c}, nil
}

// Ask creates a certificate request. One of that name that is there already is the same, of a call whose answer was lost.
func (j *Joiner) Ask(ctx context.Context, r certs.JoinRequest) error {
	meta := map[string]any{"name": r.Name}
	if r.Proof != "" {
		meta["annotations"] = map[string]any{controller.AnnotationProof: r.Proof}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": meta,
		"spec": map[string]any{"signerName": controller.SignerClient, "request": base64.StdEncoding.EncodeToString(r.PEM),
			"usages": []any{"digital signature", "client auth"}},
	}}
	_, err := j.client.objects.Resource(requestsResource).Create(ctx, object, metav1.CreateOptions{FieldManager: Manager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("asking %s for a certificate: %w", j.client.host, classify(err))
	}
	return nil
}

// Answer returns what has become of a certificate request.
func (j *Joiner) Answer(ctx context.Context, name string) (certs.JoinAnswer, error) {
	o, err := j.client.request(ctx, name)
	if apierrors.IsNotFound(err) {
		return certs.JoinAnswer{Over: "it is no longer there"}, nil
	}
	if err != nil {
		return certs.JoinAnswer{}, fmt.Errorf("asking %s for certificate request %s: %w", j.client.host, name, classify(err))
	}
	out := certs.JoinAnswer{Certificate: o.Status.Certificate, Why: o.Metadata.Annotations[controller.AnnotationReason]}
	for _, condition := range o.Status.Conditions {
		switch condition.Type {
		case "Approved":
			out.Approved = true
		case "Denied", "Failed":
			out.Over = condition.Type + ": " + condition.Message
		}
	}
	return out, nil
}

// classify marks an answer that the token is not accepted.
func classify(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusUnauthorized {
		return fmt.Errorf("%w: %w", certs.ErrTokenRefused, err)
	}
	return err
}
