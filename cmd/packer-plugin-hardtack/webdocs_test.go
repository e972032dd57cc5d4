package main_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsimple"
	"gotest.tools/v3/golden"
)

// webDocs is what HashiCorp's page of integrations shows of a plugin: the layout of its guide "Add integrations to the Packer
// registry". `go test ./cmd/packer-plugin-hardtack -run TestWebDocs -update` writes it again.
const webDocs = "../../.web-docs"

// components are the pages that have one, by their place in the docs; datasources and post-processors are one word and two there.
var components = map[string]string{
	"builders/disk.mdx": "builder/disk", "provisioners/hardtack.mdx": "provisioner/hardtack",
	"post-processors/ami.mdx": "post-processor/ami", "datasources/lock.mdx": "data-source/lock",
}

var matter = regexp.MustCompile(`(?s)\A---\n.*?\n---\n+`)

// TestWebDocs: the pages are those that packer-sdc renders, each component has one, and links lead to the others there.
func TestWebDocs(t *testing.T) {
	links := []string{}
	for page, component := range components {
		links = append(links, "]("+page+")", "](/packer/integrations/hardtack/hardtack/latest/components/"+component+")")
	}
	pages := map[string]string{}
	for page, text := range rendered(t) {
		to := "README.md"
		if page != to {
			to = "components/" + components[page] + "/README.md"
		}
		pages[to] = strings.NewReplacer(links...).Replace(matter.ReplaceAllString(text, ""))
	}
	if len(pages) != len(components)+1 {
		t.Errorf("a page without a component: %q", slices.Sorted(maps.Keys(pages)))
	}
	for name, text := range pages {
		file := filepath.Join(webDocs, name)
		if golden.FlagUpdate() {
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, file, text)
		}
		if text != read(t, file) {
			t.Errorf("%s is not what packer-sdc renders: write it again with -update", file)
		}
		if strings.Contains(text, ".mdx)") {
			t.Errorf("%s links to a page that is not there", file)
		}
	}
	var metadata struct {
		Integration struct {
			Name        string `hcl:"name"`
			Description string `hcl:"description"`
			Identifier  string `hcl:"identifier"`
			Components  []struct {
				Type string `hcl:"type"`
				Name string `hcl:"name"`
				Slug string `hcl:"slug"`
			} `hcl:"component,block"`
		} `hcl:"integration,block"`
	}
	if err := hclsimple.Decode("metadata.hcl", []byte(read(t, filepath.Join(webDocs, "metadata.hcl"))), nil, &metadata); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, c := range metadata.Integration.Components {
		have = append(have, c.Type+"/"+c.Slug)
	}
	slices.Sort(have)
	if want := slices.Sorted(maps.Values(components)); !slices.Equal(have, want) || metadata.Integration.Identifier != "packer/hardtack/hardtack" {
		t.Errorf("metadata.hcl has the components %q of %s, want %q", have, metadata.Integration.Identifier, want)
	}
}
