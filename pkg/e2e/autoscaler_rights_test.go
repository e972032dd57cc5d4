package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

// autoscalerUser is the add-on's service account.
const autoscalerUser = "system:serviceaccount:kube-system:cluster-autoscaler"

// auditOf has the options of an API server that writes each request of the add-on to a file.
func auditOf(t *testing.T, log string) []string {
	t.Helper()
	policy := filepath.Join(filepath.Dir(log), "policy.yaml")
	text := fmt.Sprintf("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n- {level: Metadata, users: [%q]}\n- level: None\n", autoscalerUser)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}
}

// asked are the rights that the add-on has used, as "VERB GROUP/RESOURCE NAME", and what was refused.
func (s *scaled) asked() (used map[string]bool, refused []string) {
	s.Helper()
	data, err := os.ReadFile(s.audit)
	if err != nil {
		s.Fatal(err)
	}
	used = map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Verb           string
			ResponseStatus struct{ Code int }
			ObjectRef      *struct{ APIGroup, Resource, Subresource, Name string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			s.Fatal(err)
		}
		if e.ObjectRef == nil {
			continue
		}
		what := right(e.Verb, e.ObjectRef.APIGroup, strings.TrimSuffix(e.ObjectRef.Resource+"/"+e.ObjectRef.Subresource, "/"), "")
		if e.ResponseStatus.Code == http.StatusForbidden {
			refused = append(refused, what+" "+e.ObjectRef.Name)
			continue
		}
		used[what], used[what+" "+e.ObjectRef.Name] = true, true
	}
	return used, refused
}

func right(verb, group, resource, name string) string {
	return strings.TrimSuffix(verb+" "+strings.TrimPrefix(group+"/"+resource, "/")+" "+name, " ")
}

// granted are the rights that roles give, each as one of asked's.
func granted(t *testing.T, roles []map[string]any) (rights []string) {
	t.Helper()
	list := func(rule map[string]any, field string) []string {
		values, _, err := unstructured.NestedStringSlice(rule, field)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	for _, r := range roles {
		rules, _, _ := unstructured.NestedSlice(r, "rules")
		for _, one := range rules {
			rule, _ := one.(map[string]any)
			names := list(rule, "resourceNames")
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range list(rule, "apiGroups") {
				for _, resource := range list(rule, "resources") {
					for _, verb := range list(rule, "verbs") {
						for _, name := range names {
							rights = append(rights, right(verb, group, resource, name))
						}
					}
				}
			}
		}
	}
	return rights
}

// allowedActions are the actions that the policy of a role in a template allows.
func allowedActions(t *testing.T, r template.Resource) []string {
	t.Helper()
	var policies []struct {
		PolicyDocument struct{ Statement []struct{ Action []string } }
	}
	data, err := json.Marshal(r.Properties["Policies"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &policies); err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, p := range policies {
		for _, statement := range p.PolicyDocument.Statement {
			actions = append(actions, statement.Action...)
		}
	}
	slices.Sort(actions)
	return actions
}
