package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/e2e/conformance"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab"
)

// registryPort is the port of the registry that lab.RegistryMirror names.
const registryPort = 5000

// TestContainerRuntime has critest, the suite of the Container Runtime Interface, judge containerd as a machine runs it. The kubelet
// is stopped meanwhile: it ends pods that no API server has told it of.
func TestContainerRuntime(t *testing.T) {
	needTime(t)
	suite, _ := conformanceSuite(t)
	slots <- struct{}{}
	defer func() { <-slots }()
	ctx, cancel := context.WithTimeout(interrupted, clusterBound)
	defer cancel()
	c := startCluster(ctx, t)
	c.serveImages(ctx, t, suite.RuntimeImages)
	c.comesUp(ctx, t)
	const there = "/var/tmp/critest"
	c.send(ctx, t, there, packCritest(t, suite.Critest))
	// Its pods' logs and volumes are directories that containerd mounts, so that they are not below the unit's own /tmp.
	t.Log(c.shell(ctx, t, `systemctl stop kubelet && mkdir -p /etc/containerd/certs.d/_default && mv `+there+`/hosts.toml /etc/containerd/certs.d/_default/ &&
		systemd-run --quiet --unit=critest --remain-after-exit --working-directory=`+there+` --setenv=TMPDIR=`+there+` --setenv=HOME=/root --setenv=PATH=`+there+`:/usr/sbin:/usr/bin \
		--property=StandardOutput=file:`+there+`/log --property=StandardError=file:`+there+`/log \
		`+there+`/critest --runtime-endpoint=unix:///run/containerd/containerd.sock --ginkgo.no-color --ginkgo.json-report=`+there+`/report.json`))
	c.await(ctx, t, "critest", func() (bool, string) {
		time.Sleep(10 * time.Second) // its specs take seconds
		state := c.shell(ctx, t, "systemctl show --property=SubState --value critest; grep -c '^. \\[' "+there+"/log")
		return strings.HasPrefix(state, "exited") || strings.HasPrefix(state, "failed"), strings.ReplaceAll(state, "\n", ", specs: ")
	})
	keep(t, "critest.log", []byte(c.shell(ctx, t, "cat "+there+"/log")))
	report := c.shell(ctx, t, "cat "+there+"/report.json")
	keep(t, "critest.json", []byte(report))
	results, err := conformance.Read([]byte(report))
	if err != nil {
		t.Fatalf("%v: %.2000s", err, report)
	}
	judgeRuntime(t, results)
}

// runtimeExceptions are specs that do not pass, with the reason of each.
func runtimeExceptions(t *testing.T) map[string]string {
	t.Helper()
	data, err := os.ReadFile("testdata/critest/exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	if err := yaml.Unmarshal(data, &known); err != nil {
		t.Fatal(err)
	}
	return known
}

// judgeRuntime fails for a spec that did not pass and is no exception, and for an exception that passed.
func judgeRuntime(t *testing.T, results []conformance.Result) {
	t.Helper()
	known, counts := runtimeExceptions(t), map[string]int{}
	for _, r := range results {
		counts[r.Outcome]++
		switch reason, excepted := known[r.Name]; {
		case r.Outcome == conformance.Passed && excepted:
			t.Errorf("%s passes: take it off the exceptions", r.Name)
		case r.Outcome != conformance.Passed && !excepted:
			t.Errorf("%s: %s: %.600s", r.Outcome, r.Name, r.Failure)
		case excepted:
			t.Logf("%s: %s (%s)", r.Outcome, r.Name, reason)
		}
	}
	t.Logf("critest: %v", counts)
	if counts[conformance.Passed] < 60 {
		t.Errorf("only %d specs passed: critest has not found what it looks at", counts[conformance.Passed])
	}
}

// serveImages makes the machine's registry, with the images of an archive.
func (c *cluster) serveImages(ctx context.Context, t *testing.T, archive string) {
	t.Helper()
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	here := httptest.NewServer(images)
	t.Cleanup(here.Close)
	if _, err := lab.Push(ctx, archive, strings.TrimPrefix(here.URL, "http://")); err != nil {
		t.Fatal(err)
	}
	listener, err := c.network.Listen(netip.AddrPortFrom(c.network.Endpoints(), registryPort))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: images}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// packCritest is an archive of the program, and of the setting by which containerd pulls from the machine's registry.
func packCritest(t *testing.T, program string) []byte {
	t.Helper()
	binary, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, content := range map[string][]byte{"critest": binary, "hosts.toml": []byte(lab.RegistryMirror()),
		// critest loads AppArmor's profiles by sudo, which a machine without people does not have; it is root here.
		"sudo": []byte("#!/bin/sh\nexec \"$@\"\n")} {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(fmt.Errorf("packing critest: %w", err))
	}
	return b.Bytes()
}
