package kube

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// signerPerson is the controller manager's signer of certificates for clients of the API server; it approves nothing by
// itself (https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers).
const signerPerson = "kubernetes.io/kube-apiserver-client"

// MinPersonLife is the shortest expirationSeconds that the API server takes.
const MinPersonLife = 10 * time.Minute

const (
	personPoll = time.Second
	// personCleanup bounds the deletion of the request, which is also tried after an interrupt.
	personCleanup = 10 * time.Second
)

// Person is whom a client certificate is for.
type Person struct {
	User string
	// Groups are the person's groups; none is fine. Only bindings give rights.
	Groups []string
	// Life is the time until the certificate expires, at least MinPersonLife. The controller manager may give less.
	Life time.Duration
}

// Check reports a person that no certificate is asked for: the API server itself refuses only the group system:masters,
// and whoever may approve could make a certificate for any part of the cluster by mistake.
func (p Person) Check() error {
	if p.User == "" {
		return errors.New("a person needs a name")
	}
	for _, name := range slices.Concat([]string{p.User}, p.Groups) {
		if name == "" || strings.HasPrefix(name, "system:") || strings.HasPrefix(name, "hardtack:") {
			return fmt.Errorf("%q is no name for people: system: and hardtack: are the cluster's own, %s among them; "+
				"next: take another name, and bind rights to it", name, pki.GroupAdmins)
		}
	}
	if p.Life < MinPersonLife {
		return fmt.Errorf("a life of %v: the API server signs for %v at least", p.Life, MinPersonLife)
	}
	return nil
}

// PersonOptions say how a person's certificate is got.
type PersonOptions struct {
	// Approve approves the request in the caller's name, if the caller may. Otherwise somebody else has to.
	Approve bool
	// Tell takes each line for whoever waits.
	Tell func(line string)
}

// PersonKubeconfig gets a person a certificate from the API server of a kubeconfig, which is a file, and returns a
// self-contained kubeconfig for the same server with the time when it expires. The key is made here and sent nowhere. It
// waits until the certificate is there or ctx ends, and deletes the request in any case. Nothing of the credentials in
// the file is in the result.
func PersonKubeconfig(ctx context.Context, file string, p Person, o PersonOptions) ([]byte, time.Time, error) {
	if err := p.Check(); err != nil {
		return nil, time.Time{}, err
	}
	config, err := personConfig(file, p.User)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading %s: %w", file, err)
	}
	client, err := NewFile(file).Client()
	if err != nil {
		return nil, time.Time{}, err
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("making the key of %s: %w", p.User, err)
	}
	text, cert, err := client.certify(ctx, key, p, o)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("asking %s for a certificate of %s: %w", client.host, p.User, err)
	}
	auth := config.AuthInfos[p.User]
	auth.ClientCertificateData = text
	if auth.ClientKeyData, err = pki.EncodeKey(key); err != nil {
		return nil, time.Time{}, err
	}
	data, err := clientcmd.Write(*config)
	return data, cert.NotAfter, err
}

// personConfig is the kubeconfig's current cluster with its files' content, and a user without credentials.
func personConfig(file, user string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	current, ok := config.Contexts[config.CurrentContext]
	if !ok {
		return nil, fmt.Errorf("it has no current context: next: kubectl --kubeconfig %s config use-context NAME", file)
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{user: {}}
	current.AuthInfo = user
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, err
	}
	if cluster := config.Clusters[current.Cluster]; cluster.InsecureSkipTLSVerify {
		return nil, fmt.Errorf("it does not check who %s is (insecure-skip-tls-verify), and neither would the new one; "+
			"next: put the authority of hardtack pki ca into certificate-authority", cluster.Server)
	}
	return config, clientcmdapi.FlattenConfig(config)
}

// certify has the key's certificate signed, and returns it as PEM and parsed.
func (c *Client) certify(ctx context.Context, key *ecdsa.PrivateKey, p Person, o PersonOptions) ([]byte, *x509.Certificate, error) {
	request, err := personRequest(key, p)
	if err != nil {
		return nil, nil, err
	}
	name := request.GetName()
	// Also after an error: the answer alone may have been lost.
	defer c.forget(context.WithoutCancel(ctx), name, o.Tell)
	request, err = c.objects.Resource(requestsResource).Create(ctx, request, metav1.CreateOptions{FieldManager: Manager})
	if err != nil {
		return nil, nil, fmt.Errorf("creating the request: %w", err)
	}
	if err := c.letApprove(ctx, request, o); err != nil {
		return nil, nil, err
	}
	text, err := c.awaitCertificate(ctx, request.GetUID(), name)
	if err != nil {
		return nil, nil, err
	}
	cert, err := pki.ParseCertificate(text)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of request %s: %w", name, err)
	}
	if !key.PublicKey.Equal(cert.PublicKey) || cert.Subject.CommonName != p.User || !sameGroups(cert.Subject.Organization, p.Groups) {
		return nil, nil, fmt.Errorf("the certificate of request %s is for %s, which is not what was asked for; next: look who else signs for %s",
			name, cert.Subject, signerPerson)
	}
	return text, cert, nil
}

func sameGroups(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func personRequest(key *ecdsa.PrivateKey, p Person) (*unstructured.Unstructured, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: p.User, Organization: p.Groups}}, key)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		// A user's name may have characters that an object's may not.
		"metadata": map[string]any{"name": "hardtack-person-" + strings.ToLower(rand.Text())},
		"spec": map[string]any{"signerName": signerPerson, "expirationSeconds": int64(p.Life / time.Second), "usages": []any{"digital signature", "client auth"},
			"request": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))},
	}}, nil
}

// letApprove approves the request as it was created, or tells who must.
func (c *Client) letApprove(ctx context.Context, request *unstructured.Unstructured, o PersonOptions) error {
	why := ""
	if o.Approve {
		err := c.approve(ctx, request, "HardtackPerson", "the caller of hardtack pki kubeconfig asked for it")
		if err == nil {
			return nil
		}
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("approving request %s: %w", request.GetName(), err)
		}
		why = fmt.Sprintf("you may not approve it: %v\n", err)
	}
	o.Tell(fmt.Sprintf("%scertificate request %s waits; an administrator looks at it and approves it:\n  kubectl describe csr %[2]s\n  kubectl certificate approve %[2]s",
		why, request.GetName()))
	return nil
}

// awaitCertificate polls until the request is answered. An API server that is away for a while is waited for too.
func (c *Client) awaitCertificate(ctx context.Context, uid types.UID, name string) ([]byte, error) {
	tick := time.NewTicker(personPoll)
	defer tick.Stop()
	state, away := "", ""
	for {
		o, err := c.request(ctx, name)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return nil, fmt.Errorf("reading request %s: %w", name, err)
		case err != nil && !over(ctx):
			away = fmt.Sprintf(" (the last answer: %v)", err)
		case err == nil && o.Metadata.UID != string(uid):
			return nil, fmt.Errorf("request %s is another's now: somebody deleted it and made one of that name", name)
		case err == nil:
			if len(o.Status.Certificate) > 0 {
				return o.Status.Certificate, nil
			}
			away = ""
			if state, err = o.waitsFor(); err != nil {
				return nil, fmt.Errorf("request %s is %w", name, err)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for request %s: %w: %s%s", name, ctx.Err(), cmp.Or(state, "it could not be read"), away)
		case <-tick.C:
		}
	}
}

// over reports whether the context has ended, or will do so at once: the last call may notice first.
func over(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// request reads a request.
func (c *Client) request(ctx context.Context, name string) (o requestObject, err error) {
	u, err := c.objects.Resource(requestsResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return o, err
	}
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	return o, err
}

// waitsFor tells what a request without a certificate waits for; the error is that it gets none.
func (o requestObject) waitsFor() (string, error) {
	state := "nobody approved it"
	for _, condition := range o.Status.Conditions {
		switch condition.Type {
		case "Approved":
			state = "it is approved and not signed; next: look whether kube-controller-manager runs"
		case "Denied", "Failed":
			return "", fmt.Errorf("%s: %s", strings.ToLower(condition.Type), condition.Message)
		}
	}
	return state, nil
}

// forget deletes a request. One that stays is no danger, since the key is not in it; the controller manager deletes it
// within an hour, or a day if nobody approved it.
func (c *Client) forget(ctx context.Context, name string, tell func(string)) {
	ctx, cancel := context.WithTimeout(ctx, personCleanup)
	defer cancel()
	err := c.objects.Resource(requestsResource).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		tell(fmt.Sprintf("certificate request %s may still be there: %v; the controller manager deletes it within a day", name, err))
	}
}
