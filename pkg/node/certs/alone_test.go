package certs_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest/programs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// TestAlone reboots a node while no API server answers: its kubelet gets what it starts alone with, and is started again once the
// node has joined. A machine that never was a node gets nothing.
func TestAlone(t *testing.T) {
	for name, node := range map[string]bool{"a node": true, "a new machine": false} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, role.Minions)
			b.publish(t)
			if node {
				if err := os.MkdirAll(filepath.Join(b.root, "var/lib/kubelet/pods"), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(filepath.Join(b.root, "run/hardtack"), 0o755); err != nil {
				t.Fatal(err)
			}
			answers := make(chan struct{})
			o := b.options(nil, certs.Forever)
			o.AloneAfter = 10 * time.Millisecond
			o.Reach = func(ctx context.Context) error {
				select {
				case <-answers:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			done := make(chan error, 1)
			go func() {
				_, err := certs.Bootstrap(t.Context(), o)
				done <- err
			}()
			env := filepath.Join(b.root, certs.AloneEnv)
			if node {
				for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
					if _, err := os.Stat(env); err == nil {
						break
					}
					if time.Since(begin) > 10*time.Second {
						t.Fatal("nothing to start alone with")
					}
				}
				kubeconfig := b.aloneKubeconfig(t)
				if !strings.Contains(kubeconfig, "https://masters.demo.k8s:443") || !strings.Contains(kubeconfig, "/run/hardtack/pki/kubelet/ca.crt") {
					t.Error(kubeconfig)
				}
				if _, err := os.Stat(filepath.Join(b.root, certs.NodeIdentity)); err == nil {
					t.Error("it has the place of the node's certificate, which other daemons wait for")
				}
			} else {
				time.Sleep(100 * time.Millisecond)
				if _, err := os.Stat(env); err == nil {
					t.Error("a kubelet that never ran would start alone")
				}
			}
			close(answers)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Dir(env)); err == nil {
				t.Error("it would start alone again")
			}
			if pending := certs.PendingRestarts(b.root); node != (len(pending) == 1 && pending[0] == pki.DirKubelet) {
				t.Errorf("to be started again: %q", pending)
			}
		})
	}
}

// TestAloneKubelet starts the lock's kubelet as a node that is alone, and as the unit did before there was a way to be: the first goes
// on to its container runtime, which is not here, with no wish to renew its certificate, and the second ends at its kubeconfig.
func TestAloneKubelet(t *testing.T) {
	lock, root := programs.DefaultLock(t), t.TempDir()
	programs.NeedBuilt(t, lock, "kubernetes")
	programs.Install(t, root, lock, "kubernetes")
	b := newBench(t, role.Minions)
	b.publish(t)
	for _, dir := range []string{"var/lib/kubelet/pods", "run/hardtack"} {
		if err := os.MkdirAll(filepath.Join(b.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := b.options(nil, certs.Forever)
	o.AloneAfter = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Reach = func(ctx context.Context) error { // until the files are there
		for ctx.Err() == nil {
			if _, err := os.Stat(filepath.Join(b.root, certs.AloneEnv)); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
		return ctx.Err()
	}
	if _, err := certs.Bootstrap(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	normal, err := os.ReadFile(filepath.Join(b.root, "run/hardtack/pki/kubelet/kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	const noCertificate = "unable to read client-cert"
	for name, test := range map[string]struct{ kubeconfig, want, wantNot string }{
		"alone":  {b.aloneKubeconfig(t), "Certificate rotation is enabled", noCertificate},
		"before": {string(normal), noCertificate, "Certificate rotation is enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			kubeconfig := strings.NewReplacer("/run/hardtack/", b.root+"/run/hardtack/", "/var/lib/kubelet/", b.root+"/var/lib/kubelet/").Replace(test.kubeconfig)
			for file, text := range map[string]string{"kubeconfig": kubeconfig, "kubelet.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
				"failCgroupV1: false\nrotateCertificates: true\ncontainerRuntimeEndpoint: unix://" + dir + "/none.sock\n"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out, err := exec.CommandContext(ctx, filepath.Join(root, programs.Bin, "kubelet"), "--config="+dir+"/kubelet.yaml", "--root-dir="+dir+"/root", "--cert-dir="+dir+"/pki",
				"--kubeconfig="+dir+"/kubeconfig", "--hostname-override=node-a", "-v=2").CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) || strings.Contains(string(out), test.wantNot) || strings.Contains(string(out), "Rotating certificates") {
				t.Errorf("%v, want %q and not %q in\n%s", err, test.want, test.wantNot, out)
			}
		})
	}
}

// aloneKubeconfig returns the kubeconfig of a kubelet that is alone, whose certificate must be a good one by itself, and of no
// authority of the cluster.
func (b *bench) aloneKubeconfig(t *testing.T) string {
	t.Helper()
	dir := filepath.Dir(filepath.Join(b.root, certs.AloneEnv))
	kubeconfig, err := os.ReadFile(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.pem"))
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Leaf.CheckSignature(pair.Leaf.SignatureAlgorithm, pair.Leaf.RawTBSCertificate, pair.Leaf.Signature); err != nil {
		t.Errorf("it is not signed by itself: %v", err)
	}
	for _, name := range []string{"node.pem", "kubeconfig"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	return string(kubeconfig)
}
