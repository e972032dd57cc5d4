package main_test

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/zclconf/go-cty/cty"

	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/builder"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/datasource"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/postprocessor/ami"
	"github.com/hardtack/packer-plugin-hardtack/cmd/packer-plugin-hardtack/provisioner"
)

// rendered is the documentation as packer-sdc renders it.
func rendered(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "docs")
	cmd := exec.CommandContext(t.Context(), "go", "tool", "packer-sdc", "renderdocs", "-src", "docs", "-partials", "docs-partials/", "-dst", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("rendering: %v\n%s", err, out)
	}
	pages := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			pages[strings.TrimPrefix(path, dir+"/")] = read(t, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func TestDocsNameEveryOption(t *testing.T) {
	pages := rendered(t)
	for page, component := range map[string]packer.HCL2Speccer{
		"builders/disk.mdx": &builder.Builder{}, "provisioners/hardtack.mdx": &provisioner.Provisioner{}, "datasources/lock.mdx": &datasource.Datasource{}, "post-processors/ami.mdx": ami.New(),
	} {
		text := pages[page]
		if strings.Contains(text, "@include") {
			t.Errorf("%s: a part was not found", page)
		}
		for option := range component.ConfigSpec() {
			if !strings.HasPrefix(option, "packer_") && !strings.Contains(text, "- `"+option+"`") {
				t.Errorf("%s does not tell about the option %s", page, option)
			}
		}
	}
	for output := range (&datasource.Datasource{}).OutputSpec() {
		if !strings.Contains(pages["datasources/lock.mdx"], "- `"+output+"`") {
			t.Errorf("the data source's page does not tell about the output %s", output)
		}
	}
}

var fence = regexp.MustCompile("(?s)```hcl\n(.*?)```")

func TestDocsParse(t *testing.T) {
	found := 0
	for page, text := range rendered(t) {
		for _, block := range fence.FindAllStringSubmatch(text, -1) {
			found++
			if _, problems := hclparse.NewParser().ParseHCL([]byte(block[1]), page); problems.HasErrors() {
				t.Errorf("%s: %v", page, problems)
			}
		}
	}
	if found < 4 {
		t.Errorf("found only %d examples", found)
	}
}

// A name that depends on a data source is unknown to `packer validate`, which does not run data sources: amazon-ebs then refuses the
// name of Packer's placeholder. So the name of aws.pkr.hcl depends on none, by whatever locals it is made of. Packer itself is asked in
// awstest, with the amazon plugin.
func TestImageNameNeedsNoDataSource(t *testing.T) {
	file, problems := hclparse.NewParser().ParseHCLFile("../../images/aws.pkr.hcl")
	if problems.HasErrors() {
		t.Fatal(problems)
	}
	locals := map[string]hcl.Expression{}
	var name hcl.Expression
	for _, b := range file.Body.(*hclsyntax.Body).Blocks {
		for key, a := range b.Body.Attributes {
			switch {
			case b.Type == "locals":
				locals[key] = a.Expr
			case b.Type == "source" && key == "ami_name":
				name = a.Expr
			}
		}
	}
	if name == nil {
		t.Fatal("the source has no ami_name")
	}
	seen := map[string]bool{}
	var look func(hcl.Expression)
	look = func(e hcl.Expression) {
		for _, v := range e.Variables() {
			text := string(hclwrite.TokensForTraversal(v).Bytes())
			if v.RootName() == "data" {
				t.Errorf("the image's name depends on %s", text)
			}
			if local, ok := strings.CutPrefix(text, "local."); ok && !seen[local] && locals[local] != nil {
				seen[local] = true
				look(locals[local])
			}
		}
	}
	look(name)
	if !seen["image_name"] {
		t.Errorf("the image's name is not local.image_name: %v", seen)
	}
	tags, ok := locals["tags"]
	if !ok {
		t.Fatal("there are no tags")
	}
	for _, key := range []string{"hardtack:image", "hardtack:kubernetes", "hardtack:bake", "hardtack:version"} {
		if !slices.ContainsFunc(tags.(*hclsyntax.ObjectConsExpr).Items, func(i hclsyntax.ObjectConsItem) bool {
			v, _ := i.KeyExpr.Value(nil)
			return v.Type() == cty.String && v.IsKnown() && v.AsString() == key
		}) {
			t.Errorf("the image has no tag %s", key)
		}
	}
}

// The templates are checked by Packer itself, with this plugin.
func TestTemplatesAreValid(t *testing.T) {
	packer := packerTool(t)
	for _, template := range []string{"../../images/local.pkr.hcl", "../../images/publish.pkr.hcl", "../../images/example/ingress/ingress.pkr.hcl", "example/ssh.pkr.hcl"} {
		for _, command := range []string{"validate", "fmt -check"} {
			if out, err := packer(append(strings.Fields(command), template)...); err != nil {
				t.Errorf("packer %s %s: %v\n%s", command, template, err, out)
			}
		}
	}
}
