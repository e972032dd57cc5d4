package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fatih/color"
	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// The forms in which every command that has a result prints it.
const (
	asTable = "table" // what people read: a table, a document, a sentence
	asJSON  = "json"
	asYAML  = "yaml"
)

var formats = []string{asTable, asJSON, asYAML}

// plotFormats are those of a drawing.
var plotFormats = []string{"svg", "png"}

// withoutResult are the commands that have no result of their own, and why; all others take --output, which inherit gives them.
var withoutResult = map[string]string{
	"completion":  "a script for a shell",
	"help":        "text for people",
	"man":         "a page for man",
	"lab kubectl": "kubectl's output, which has its own -o",
	"lab aws":     "another program's output; alone, it reads -o itself",
	"lab shell":   "a terminal",
	"lab exec":    "another program's output",
	"lab logs":    "a machine's own lines",
	"lab daemon":  "the daemon's log",
}

// outputFlags choose the form of a command's result.
func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "print the result in this `FORMAT`: json, yaml, or table, which people read (default: table)"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON, as -o json does"},
	}
}

// checkFormat reports a form that there is not, and two at once.
func checkFormat(c *cli.Context) error {
	form := c.String("output")
	switch {
	case form == "":
		return nil
	case !slices.Contains(formats, form) && flagNamed(c.Command.Flags, "--out") != nil:
		return usagef("--output %s: the formats are %s; --out %s writes to a file of that name", form, strings.Join(formats, ", "), form)
	case !slices.Contains(formats, form):
		return usagef("--output %s: the formats are %s", form, strings.Join(formats, ", "))
	case c.Bool("json") && form != asJSON:
		return usagef("--json and --output %s contradict each other: give one", form)
	}
	return nil
}

// formatOf is the form that the flags of a command ask for.
func formatOf(c *cli.Context) string {
	if c.Bool("json") {
		return asJSON
	}
	if form := c.String("output"); form != "" {
		return form
	}
	return asTable
}

// structured reports whether the result is for a program: the caller then prints it with printResult, and nothing else.
func structured(c *cli.Context) bool { return formatOf(c) != asTable }

// printResult prints a result for a program. Keys are snake_case; TestJSONKeys checks it.
func printResult(c *cli.Context, v any) error { return encode(c.App.Writer, formatOf(c), v) }

// printAs is printResult where the library does not read the flags.
func printAs(c *cli.Context, form string, v any) error { return encode(c.App.Writer, form, v) }

// leadingFormat separates a leading -o FORMAT or --json from another program's arguments; form is empty if there is none.
func leadingFormat(args []string) (form string, rest []string, err error) {
	switch {
	case len(args) > 0 && args[0] == "--json":
		form, rest = asJSON, args[1:]
	case len(args) > 1 && (args[0] == "-o" || args[0] == "--output"):
		form, rest = args[1], args[2:]
	default:
		return "", args, nil
	}
	if form != asJSON && form != asYAML || len(rest) > 0 {
		return "", nil, usagef("-o %s: alone, and with json or yaml, it prints the result; a program has its own flags behind its name", form)
	}
	return form, nil, nil
}

// encode writes JSON, or the same as YAML; a second YAML document is separated from the first as in a stream.
func encode(w io.Writer, form string, v any) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encoding the result: %w", err)
	}
	if form == asYAML {
		var node yaml.Node // JSON is YAML: keys, their order and the values stay
		if err := yaml.Unmarshal(data.Bytes(), &node); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
		asBlocks(&node)
		data.Reset()
		data.WriteString("---\n")
		enc := yaml.NewEncoder(&data)
		enc.SetIndent(2)
		if err := enc.Encode(&node); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
	}
	_, err := w.Write(data.Bytes())
	return err
}

// asBlocks has a node written as people write YAML, not in the style of the JSON that it was read from.
func asBlocks(n *yaml.Node) {
	if n.Style = 0; n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode {
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
	}
	for _, below := range n.Content {
		asBlocks(below)
	}
}

// inForm is a file that a command makes, in YAML or JSON, in the form that is asked for; it stays as it is where it has that.
func inForm(c *cli.Context, data []byte) ([]byte, error) {
	form := formatOf(c)
	if form == asTable || (form == asJSON) == json.Valid(data) {
		return data, nil
	}
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("encoding the result: %w", err)
	}
	var out bytes.Buffer
	err := encode(&out, form, v)
	return out.Bytes(), err
}

// printDocument prints what inForm returns.
func printDocument(c *cli.Context, data []byte) error {
	data, err := inForm(c, data)
	if err != nil {
		return err
	}
	_, err = c.App.Writer.Write(data)
	return err
}

// The colours of what people look for. The library leaves them out where stdout is no terminal, TERM is dumb or NO_COLOR is set.
var (
	green  = color.New(color.FgGreen)
	red    = color.New(color.FgRed)
	yellow = color.New(color.FgYellow)
)

// onStderr is a text in a colour where standard error is a terminal, whatever stdout is.
func onStderr(paint *color.Color, text string) string {
	own := *paint
	if _, never := os.LookupEnv("NO_COLOR"); never || os.Getenv("TERM") == "dumb" || !term.IsTerminal(int(os.Stderr.Fd())) {
		own.DisableColor()
	} else {
		own.EnableColor()
	}
	return own.Sprint(text)
}

// painted is a table whose rows have colours. The rows are aligned first: a colour has no width.
type painted struct {
	text   bytes.Buffer
	tabs   *tabwriter.Writer
	colors []*color.Color
}

func newPainted() *painted {
	p := &painted{}
	p.tabs = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	return p
}

// row adds a line, in a colour or, with nil, in none; tabs separate its cells.
func (p *painted) row(paint *color.Color, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(p.tabs, text)
	for range strings.Count(text, "\n") + 1 {
		p.colors = append(p.colors, paint)
	}
}

// String is the table with its colours.
func (p *painted) String() string {
	_ = p.tabs.Flush() // writes to memory
	var b strings.Builder
	i := 0
	for line := range strings.Lines(p.text.String()) {
		text := strings.TrimSuffix(line, "\n")
		if paint := p.colors[i]; paint != nil && text != "" {
			text = paint.Sprint(text)
		}
		b.WriteString(text + "\n")
		i++
	}
	return b.String()
}

// dash replaces an empty cell of a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
