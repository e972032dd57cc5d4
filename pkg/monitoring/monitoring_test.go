package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// documents are a cluster with a member of etcd on each master, and one with everything that changes the files.
var documents = map[string]string{
	"together": `
- {name: masters, roles: [masters, etcd]}
- {name: minions, roles: [minions], size: 2}
`,
	"apart": `
- {name: masters, roles: [masters], size: 3}
- {name: etcd, roles: [etcd], members: [a, b, c]}
- {name: minions, roles: [minions], size: 2}
etcd: {backup: {to: dir:/var/backups/etcd}}
api: {port: 6443}
addons: [metrics-server]
`,
}

func files(t *testing.T, name string) map[string][]byte {
	t.Helper()
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	head := "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\nstore: dir:/etc/hardtack/store\ngroups:"
	cluster, problems := spec.Parse("cluster.yaml", []byte(head+documents[name]))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	complete, problems := cluster.Complete(image)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	out, err := monitoring.Files(complete)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// promtool runs Prometheus' own judge in a directory.
func promtool(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not on PATH: run scripts/setup --judges, and the test by make")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func authority(t *testing.T, name string) pki.Authority {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.NewAuthority(name, key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestConfiguration: Prometheus takes the files of each document, with a certificate beside them, and they are what they were.
func TestConfiguration(t *testing.T) {
	for name := range documents {
		t.Run(name, func(t *testing.T) {
			all := files(t, name)
			golden.Assert(t, string(all[monitoring.Configuration]), name+".yml")
			if _, has := all[monitoring.BackupRules]; has != (name == "apart") {
				t.Errorf("%s: rules for backups: %v", name, has)
			}
			credentials, err := monitoring.Credentials(authority(t, "kubernetes"), authority(t, "kubelets"), time.Hour, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for _, m := range []map[string][]byte{all, credentials} {
				for file, content := range m {
					if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if out, err := promtool(t, dir, "check", "config", monitoring.Configuration); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			// The judge judges: without the key it refuses.
			if err := os.Remove(filepath.Join(dir, monitoring.Key)); err != nil {
				t.Fatal(err)
			}
			if out, err := promtool(t, dir, "check", "config", monitoring.Configuration); err == nil {
				t.Errorf("without a key it says\n%s", out)
			}
		})
	}
}

// ruleTests are for promtool test rules.
var ruleTests = []string{"rules_test.yml", "days_test.yml"}

// ruleFile is the part of a file of rules, or of their tests, that is read.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	}
	Tests []struct {
		Cases []struct {
			Alert    string      `yaml:"alertname"`
			Expected []yaml.Node `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	}
}

func readRules(t *testing.T, file string) (r ruleFile) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRules: every alarm says how urgent it is and what to do, fires on its fault and is silent on what is well.
func TestRules(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range slices.Concat(readRules(t, ruleTests[0]).Tests, readRules(t, ruleTests[1]).Tests) {
		for _, c := range test.Cases {
			if len(c.Expected) > 0 {
				fires[c.Alert] = true
			} else {
				silent[c.Alert] = true
			}
		}
	}
	for _, file := range []string{monitoring.Rules, monitoring.BackupRules} {
		for _, g := range readRules(t, file).Groups {
			for _, r := range g.Rules {
				if !fires[r.Alert] || !silent[r.Alert] {
					t.Errorf("%s: a test fires it: %v; one is silent: %v", r.Alert, fires[r.Alert], silent[r.Alert])
				}
				if !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["next"] == "" {
					t.Errorf("%s lacks its severity, summary or next", r.Alert)
				}
			}
		}
	}
	if out, err := promtool(t, ".", "check", "rules", "--lint-fatal", monitoring.Rules, monitoring.BackupRules); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := promtool(t, ".", append([]string{"test", "rules"}, ruleTests...)...); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRulesJudge: a rule that is weaker than it says fails the tests of the rules.
func TestRulesJudge(t *testing.T) {
	for from, to := range map[string]string{
		"max(hardtack_etcd_voters) < max(hardtack_etcd_quorum)":       "max(hardtack_etcd_voters) < 0",
		"/ max by (member) (hardtack_etcd_member_quota_bytes) > 0.95": "/ max by (member) (hardtack_etcd_member_quota_bytes) > 0.99",
		"< 0.25":  "< 0.05",
		"< 36000": "< 3600",
		"max by (node) (hardtack_node_ready) == 0":                      "min by (node) (hardtack_node_ready) == 2",
		"hardtack_dns_record_has_master == 0":                           "max(hardtack_dns_record_has_master) == 0",
		"== 1 unless on () max(hardtack_etcd_backup_timestamp_seconds)": "== 2 unless on () max(hardtack_etcd_backup_timestamp_seconds)",
		"max by (source) (hardtack_metrics_source_up)":                  "min by (source) (hardtack_metrics_source_up)",
	} {
		dir, found := t.TempDir(), false
		for _, file := range append([]string{monitoring.Rules, monitoring.BackupRules}, ruleTests...) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			weaker := strings.ReplaceAll(string(data), from, to)
			found = found || weaker != string(data)
			if err := os.WriteFile(filepath.Join(dir, file), []byte(weaker), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := promtool(t, dir, append([]string{"test", "rules"}, ruleTests...)...); err == nil || !found {
			t.Errorf("with %q for %q (found: %v) the tests of the rules say\n%s", to, from, found, out)
		}
	}
}
