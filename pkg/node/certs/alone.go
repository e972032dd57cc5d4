package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/file"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// A node's key is never on a disk (kops, EKS and kubeadm keep it there), so that a snapshot, a copy or a stolen disk of a node is
// not that node to the API for days. So it is gone after a reboot, and where no master gives the node another certificate its
// kubelet would not start: nor would its static pods. It starts alone instead, with a certificate that nobody has signed and no
// API server accepts, until the node has joined again. What the API assigned to the node starts then, as with a certificate: the
// kubelet keeps no pods of the API's over a reboot.

// AloneAfter is how long a node that was one before tries to join again before its kubelet starts alone: an API server that works
// answers sooner, and the kubelet need not be started twice.
const AloneAfter = 20 * time.Second

// The files of a kubelet that is alone; the last one makes its unit start with them.
const (
	aloneDir        = "/run/hardtack/alone"
	aloneIdentity   = aloneDir + "/node.pem"
	aloneKubeconfig = aloneDir + "/kubeconfig"
	AloneEnv        = aloneDir + "/kubelet.env"
)

// kubeletPods is there from a kubelet's first start on.
const kubeletPods = "/var/lib/kubelet/pods"

// aloneLife bounds the certificate's life. A kubelet would try to renew one that ends, and API servers take none.
const aloneLife = 10 * 365 * 24 * time.Hour

// alone starts the clock of a node that has to join. The function that it returns ends that, once the node has joined or given up.
func (o BootstrapOptions) alone(server, node string) (stop func()) {
	if _, err := os.Stat(filepath.Join("/", o.Root, kubeletPods)); err != nil || o.AloneAfter == 0 {
		return func() {}
	}
	var mu sync.Mutex
	over := false
	timer := time.AfterFunc(o.AloneAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if err := o.writeAlone(server, node); err != nil {
			o.Log.Warn("the kubelet waits until the node has joined, and its static pods with it", "error", err)
			return
		}
		o.Log.Warn("the node has not joined again yet: its kubelet starts alone, for its static pods", "node", node, "after", o.AloneAfter)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		timer.Stop()
	}
}

// writeAlone writes the files of a kubelet that is alone.
func (o BootstrapOptions) writeAlone(server, node string) error {
	identity, err := selfSigned(nodeUser+node, o.Now())
	if err != nil {
		return err
	}
	dir := filepath.Join("/", o.Root, aloneDir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	kubeconfig := pki.Kubeconfig{Server: server, CAFile: pki.Bundle{Dir: pki.DirKubelet}.Path("ca.crt"), User: "alone",
		CertificateFile: aloneIdentity, KeyFile: aloneIdentity}.Render()
	for _, f := range []struct {
		name string
		text []byte
	}{
		{aloneIdentity, identity}, {aloneKubeconfig, kubeconfig},
		{AloneEnv, []byte("# Of a node that has not joined again after its reboot.\nKUBELET_ALONE=--kubeconfig=" + aloneKubeconfig + "\n")},
	} {
		if _, err := file.Replace(filepath.Join("/", o.Root, f.name), f.text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// selfSigned makes a certificate and its key that no authority of the cluster knows.
func selfSigned(name string, now time.Time) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{nodeGroup}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(aloneLife), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...), nil
}

// endAlone removes the files of a kubelet that was alone, and notes that it is to be started again.
func (o BootstrapOptions) endAlone() error {
	dir := filepath.Join("/", o.Root, aloneDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := noteRestart(o.Root, pki.DirKubelet); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing what the kubelet was alone with: %w", err)
	}
	return nil
}
