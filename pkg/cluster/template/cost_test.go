package template_test

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster/template"
)

func cost(t *testing.T, name, region string) template.Sheet {
	t.Helper()
	list, err := template.Prices()
	assert.NilError(t, err)
	sheet, err := template.Cost(document(t, name), region, list)
	assert.NilError(t, err)
	return sheet
}

func TestCost(t *testing.T) {
	for _, name := range documents {
		data, err := json.MarshalIndent(cost(t, name, "us-east-1"), "", "  ")
		assert.NilError(t, err)
		golden.Assert(t, string(data)+"\n", name+".cost.json")
	}
}

// An unknown cost is not part of the sum, and is listed.
func TestCostElsewhere(t *testing.T) {
	sheet := cost(t, "large", "eu-central-1")
	known := map[string]string{}
	unknown := 0
	for _, l := range sheet.Lines {
		if l.USD == "" {
			unknown++
			continue
		}
		known[l.Part] = l.USD
	}
	assert.DeepEqual(t, known, map[string]string{"private zone": "0.50", "requests to Route 53": "0.00", "requests to AutoScaling": "0.00"})
	assert.Equal(t, sheet.USD, "0.50")
	assert.Equal(t, len(sheet.Unknown), unknown)
}

// A price that the program could not read would be no price.
func TestPricesAreStrict(t *testing.T) {
	for _, text := range []string{
		"- {item: zone, region: \"*\", unit: zone-month, usd: cheap, source: x, read: 2026-01-01}",
		"- {item: zone, region: \"*\", unit: zone-month, usd: \"1\", source: x, read: today}",
		"- {item: zone, region: \"*\", unit: zone-month, usd: \"1\", read: 2026-01-01}",
		"- {item: zone, region: \"*\", unit: zone-month, usd: \"1\", source: x, read: 2026-01-01, eur: 2}",
		"- &a {item: zone, region: \"*\", unit: zone-month, usd: \"1\", source: x, read: 2026-01-01}\n- *a",
	} {
		if _, err := template.ParsePrices([]byte(text)); err == nil {
			t.Errorf("is taken: %s", text)
		}
	}
	_, err := template.Cost(document(t, "default"), "r", []template.Price{{Item: "zone", Region: "r", Unit: "hour", USD: "1", Source: "x", Read: "2026-01-01"}})
	assert.ErrorContains(t, err, "by hour")
	_, err = template.Cost(document(t, "default"), "r", []template.Price{{Item: "zone", Region: "r", Unit: "zone-month", USD: "cheap"}})
	assert.ErrorContains(t, err, "cheap")
}

// The quantities are those of the function's template and metrics.
func TestCostCountsWhatTheFunctionHas(t *testing.T) {
	template, err := os.ReadFile("../../../lambda/template.yaml")
	assert.NilError(t, err)
	code, err := os.ReadFile("../../dns/function/metrics.go")
	assert.NilError(t, err)
	assert.Equal(t, len(regexp.MustCompile(`Type: AWS::CloudWatch::Alarm`).FindAll(template, -1)), 7)
	assert.Equal(t, len(regexp.MustCompile(`\{"[A-Za-z]+", "Count"\}`).FindAll(code, -1)), 10)
	assert.Assert(t, regexp.MustCompile(`MemorySize: 256\n`).Match(template) && regexp.MustCompile(`rate\(1 minute\)`).Match(template))
}
