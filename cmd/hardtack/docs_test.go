package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/userdata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// root is the repository; paths of documents are relative to it.
const root = "../.."

// userDocs are for people who use Hardtack, contributorDocs for those who change it. The plugin's own pages have a test
// beside them.
var (
	userDocs        = []string{"README.md", "images/README.md", "images/example/ingress/README.md", "units/README.md", "lambda/README.md", "cmd/hardtack/README.md", "cmd/hardtack/REFERENCE.md"}
	contributorDocs = []string{"pkg/README.md", "pkg/etcd/README.md", "scripts/README.md"}
	allDocs         = slices.Concat(userDocs, contributorDocs)
)

// document is a Markdown file, taken apart by its fences.
type document struct {
	name string
	text string
	// prose is the text without its fenced blocks; lines is the prose line by line, empty where a block was.
	lines []string
	// blocks are the fenced blocks.
	blocks []block
}

type block struct{ language, text string }

func readDocument(t *testing.T, name string) document {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	d := document{name: name, text: string(content)}
	inside := false
	for line := range strings.Lines(d.text) {
		language, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !inside:
			d.blocks = append(d.blocks, block{language: language})
			inside, line = true, ""
		case fence:
			inside, line = false, ""
		case inside:
			d.blocks[len(d.blocks)-1].text += line
			line = ""
		}
		d.lines = append(d.lines, strings.TrimRight(line, "\n"))
	}
	if inside {
		t.Fatalf("%s: a fenced block does not end", name)
	}
	return d
}

// documents reads every document.
func documents(t *testing.T) []document {
	t.Helper()
	var all []document
	for _, name := range allDocs {
		all = append(all, readDocument(t, name))
	}
	return all
}

// code lists the code in a document: the lines of its blocks without a language, and its code spans.
func (d document) code() []string {
	var all []string
	for _, b := range d.blocks {
		if b.language == "" {
			text := strings.ReplaceAll(b.text, "\\\n", " ")
			all = slices.AppendSeq(all, strings.Lines(text))
		}
	}
	for _, span := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(d.lines, "\n"), -1) {
		all = append(all, strings.ReplaceAll(span[1], "\n", " "))
	}
	return all
}

// TestDocsAreListed has every README of the tree among the documents that are tested, but those below .web-docs: they are rendered from
// the plugin's pages, which its tests hold.
func TestDocsAreListed(t *testing.T) {
	for _, pattern := range []string{"README.md", "*/README.md", "images/example/*/README.md", "cmd/*/*.md", "pkg/*/README.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			if name, _ := filepath.Rel(root, file); !slices.Contains(allDocs, name) && !strings.HasPrefix(name, ".") {
				t.Errorf("%s is in no list of documents", name)
			}
		}
	}
}

// TestDocsAreWrapped bounds the README, and the width of prose: tables, code, links and generated parts are as they are.
func TestDocsAreWrapped(t *testing.T) {
	for _, d := range documents(t) {
		if d.name == "cmd/hardtack/REFERENCE.md" {
			continue
		}
		if lines := strings.Count(d.text, "\n"); d.name == "README.md" && lines > 150 {
			t.Errorf("README.md has %d lines, want at most 150", lines)
		}
		for i, line := range d.lines {
			if len([]rune(line)) > 100 && !strings.HasPrefix(line, "|") {
				t.Errorf("%s:%d: %d characters, want at most 100", d.name, i+1, len([]rune(line)))
			}
		}
	}
}

// TestUserDocsNeedNoSource sends no user to Go source for an answer; a command that runs a test is not source.
func TestUserDocsNeedNoSource(t *testing.T) {
	source := regexp.MustCompile(`\bpkg/[a-z]|\.go\b`)
	for _, name := range userDocs {
		d := readDocument(t, name)
		for _, span := range d.code() {
			if source.MatchString(span) && !strings.Contains(span, "go test") {
				t.Errorf("%s sends users to Go source: %s", name, span)
			}
		}
	}
}

// TestDocsLink has every link between documents, and to a section of one, lead somewhere.
func TestDocsLink(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, d := range documents(t) {
		for _, match := range link.FindAllStringSubmatch(strings.Join(d.lines, "\n"), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			file, section, _ := strings.Cut(match[1], "#")
			target := d.name
			if file != "" {
				target = path.Join(path.Dir(d.name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s links to %s, which is not there", d.name, target)
				continue
			}
			if section != "" && !slices.Contains(readDocument(t, target).sections(), section) {
				t.Errorf("%s links to %s, which has no section #%s", d.name, target, section)
			}
		}
	}
}

// sections are the anchors of a document's headings, as GitHub makes them.
func (d document) sections() []string {
	var all []string
	dropped := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, line := range d.lines {
		if heading := strings.TrimLeft(line, "#"); heading != line {
			anchor := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	return all
}

// yamlBlocks are the YAML blocks of the documents that begin with a text; there is at least one.
func yamlBlocks(t *testing.T, prefix string) []string {
	t.Helper()
	var all []string
	for _, d := range documents(t) {
		for _, b := range d.blocks {
			if b.language == "yaml" && strings.HasPrefix(b.text, prefix) {
				all = append(all, b.text)
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("no document shows a block that begins with %s", prefix)
	}
	return all
}

// The user data that the documents show makes a minion.
func TestDocsUserData(t *testing.T) {
	for _, text := range yamlBlocks(t, "#cloud-config") {
		result, problems := userdata.Parse([]byte(text), nil)
		if err := problems.Err(); err != nil {
			t.Errorf("%v in\n%s", err, text)
		}
		if len(result.Files) != 1 || result.Files[0].Path != role.Minions.File() {
			t.Errorf("files are %+v, want one role file in\n%s", result.Files, text)
		}
	}
}

// TestDocsClusters checks that the cluster documents in the docs can be read.
func TestDocsClusters(t *testing.T) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range yamlBlocks(t, "apiVersion: hardtack") {
		cluster, problems := spec.Parse("cluster.yaml", []byte(text))
		if err := problems.Err(); err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		if _, problems = cluster.Complete(image); problems.Err() != nil {
			t.Errorf("%v in\n%s", problems.Err(), text)
		}
	}
}
