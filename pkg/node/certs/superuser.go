package certs

import (
	"context"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Superuser returns a kubeconfig for the API server at server that has all rights for pki.FirstLife. Only machines whose
// credentials may read the Kubernetes authority's key get one, which masters' do; it is never written to a file.
func Superuser(ctx context.Context, store Secrets, server string, now time.Time) ([]byte, error) {
	keys, err := store.GetAll(ctx, pki.KubernetesCA+pki.Crt, pki.KubernetesCA+pki.Key)
	if err != nil {
		return nil, classified(err, store)
	}
	k := keyring{store: store, now: now, keys: keys}
	a := k.authority(pki.KubernetesCA)
	if k.err != nil {
		return nil, reason.With(reason.Certificates, k.err)
	}
	return pki.AdminKubeconfig(a, server, pki.FirstLife, now)
}
