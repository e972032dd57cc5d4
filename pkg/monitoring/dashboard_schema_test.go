package monitoring_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/hardtack/packer-plugin-hardtack/pkg/monitoring"
)

// judged reads a dashboard with the types that Grafana generates from its own schemas, of dashboards, of each kind of panel and of
// Prometheus' queries; what they do not know is an error.
func judged(data []byte) error {
	plugins.RegisterDefaultPlugins()
	var d dashboard.Dashboard //nolint:staticcheck // the second form of dashboards is for Grafana 12 and newer alone
	if err := found(d.UnmarshalJSONStrict(data)); err != nil {
		return err
	}
	return found(d.Validate())
}

// found is an error of the judge; a list of none, which it sometimes returns, is not one.
func found(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}

// TestDashboardSchema: Grafana's schema takes the dashboard, and no other.
func TestDashboardSchema(t *testing.T) {
	data, err := os.ReadFile(monitoring.Dashboard)
	if err != nil {
		t.Fatal(err)
	}
	if err := judged(data); err != nil {
		t.Errorf("Grafana's schema says:\n%v", err)
	}
	for from, to := range map[string]string{
		`"schemaVersion"`:       `"schemaVersions"`,
		`"gridPos"`:             `"gridPosition"`,
		`"schemaVersion": 37`:   `"schemaVersion": "37"`,
		`"timezone": "browser"`: `"timezone": 1`,
		`"expr"`:                `"query"`,
	} {
		if !strings.Contains(string(data), from) {
			t.Errorf("the dashboard has no %s", from)
			continue
		}
		if err := judged([]byte(strings.Replace(string(data), from, to, 1))); err == nil {
			t.Errorf("Grafana's schema takes %s for %s", to, from)
		}
	}
}
