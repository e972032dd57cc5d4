package main

import (
	"bytes"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/pkg/userdata"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

const readmePath = "../../README.md"

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(readmePath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadmeShowsTheRoleTable(t *testing.T) {
	var out bytes.Buffer
	if err := newApp(&out, io.Discard).RunContext(t.Context(), []string{"hardtack", "roles"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(readme(t), out.String()) {
		t.Errorf("the README's role table is not what `hardtack roles` prints:\n%s", out.String())
	}
}

// Every `hardtack VERB` that the README names in code is a command, and every script and Make target is there.
func TestReadmeNamesWhatExists(t *testing.T) {
	text := readme(t)
	app := newApp(io.Discard, io.Discard)
	for _, match := range regexp.MustCompile("(?m)(?:`|^)hardtack ([a-z]+)").FindAllStringSubmatch(text, -1) {
		if app.Command(match[1]) == nil {
			t.Errorf("the README names `hardtack %s`, which is no command", match[1])
		}
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile("(?m)(?:`|^)make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)^` + match[1] + `:`).Match(makefile) {
			t.Errorf("the README names `make %s`, which is no target", match[1])
		}
	}
	for _, match := range regexp.MustCompile("`(scripts/[a-z-]+)").FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(path.Join("../..", match[1])); err != nil {
			t.Errorf("the README names %s: %v", match[1], err)
		}
	}
}

// The user data that the README shows makes a minion.
func TestReadmeUserData(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(#cloud-config.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no user data")
	}
	for _, block := range blocks {
		result, problems := userdata.Parse([]byte(block[1]))
		if err := problems.Err(); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
		if len(result.Files) != 1 || result.Files[0].Path != role.Minions.File() {
			t.Errorf("files are %+v, want one role file in\n%s", result.Files, block[1])
		}
	}
}

// TestReadmeClusters holds the documents of clusters to what reads them.
func TestReadmeClusters(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(apiVersion: hardtack.*?)```").FindAllStringSubmatch(readme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no cluster")
	}
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		cluster, problems := spec.Parse("README.md", []byte(block[1]))
		if err := problems.Err(); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
			continue
		}
		if _, problems = cluster.Complete(image); problems.Err() != nil {
			t.Errorf("%v in\n%s", problems.Err(), block[1])
		}
	}
}
