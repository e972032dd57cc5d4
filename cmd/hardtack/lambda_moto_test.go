package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

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
			Type, Condition string
			Properties      map[string]any
		}
	}
	if err := json.Unmarshal(out, &doc); err != nil {
		t.Fatalf("reading the translated template: %v", err)
	}
	resources = map[string]map[string]any{}
	for id, r := range doc.Resources {
		if r.Condition != "" {
			continue // no parameter of this stack makes one hold
		}
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
