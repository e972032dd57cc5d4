package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// startMoto starts moto's server on a free port and returns its address once it answers.
func startMoto(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "moto_server", "-H", "127.0.0.1", "-p", port)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
			return "http://" + address
		}
		select {
		case err := <-ended:
			t.Fatalf("moto ended: %v\n%s", err, output.String())
		case <-ctx.Done():
			t.Fatalf("moto does not listen: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// translated is lambda/template.yaml as SAM translates it, as text and as far as the tests look into it.
func translated(t *testing.T, parameters map[string]string) (template string, resources map[string]map[string]any) {
	t.Helper()
	args := []string{"-W", "ignore", "testdata/lambda/translate.py", "../../lambda/template.yaml"}
	for k, v := range parameters {
		args = append(args, k+"="+v)
	}
	cmd := exec.CommandContext(t.Context(), "python3", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("translating the template: %v: %s", err, &stderr)
	}
	var doc struct {
		Resources map[string]struct {
			Type       string
			Properties map[string]any
		}
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("reading the translated template: %v", err)
	}
	resources = map[string]map[string]any{}
	for id, r := range doc.Resources {
		resources[id] = r.Properties
		resources[id]["\x00type"] = r.Type
	}
	return string(out), resources
}

// putObject stores the function's package where the template has it.
func putObject(t *testing.T, moto, path string, body []byte) {
	t.Helper()
	for _, r := range []struct {
		path string
		body []byte
	}{{strings.Split(path, "/")[0], nil}, {path, body}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, moto+"/"+r.path, bytes.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("storing %s: %s, %v", r.path, resp.Status, err)
		}
	}
}
