package unit

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Text is the table for people: a row for each unit, a mark under the role that runs it, and what holds
// on every machine.
func (t Table) Text() string {
	// Every row keeps its empty cells for the alignment, and loses the blanks that they become.
	var aligned, text strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	header := []string{"unit"}
	for _, r := range t.Roles {
		header = append(header, string(r.Role))
	}
	fmt.Fprintln(w, strings.Join(header, "\t"))
	var every []string
	for _, row := range t.Units {
		if row.Role == "" {
			every = append(every, row.Unit)
			continue
		}
		fmt.Fprintln(w, strings.Join(t.cells(row.Unit, row.Role), "\t"))
	}
	for _, name := range t.NoUnit {
		fmt.Fprintln(w, name+" (no unit)")
	}
	_ = w.Flush() // into memory, where no write fails
	for line := range strings.Lines(aligned.String()) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if len(every) > 0 {
		fmt.Fprintf(&text, "\nEvery machine runs %s.\n", shortNames(every))
	}
	for _, o := range t.Ports {
		where := "every machine"
		if o.Role != "" {
			where = string(o.Role)
		}
		fmt.Fprintf(&text, "%s is reached at %s on %s, from %s.\n", Unit{Name: o.Unit}.Short(), o.Port(), where, strings.Join(o.Sources(), ", "))
	}
	if none, _ := t.Combination(nil); len(none.Fails) > 0 {
		fmt.Fprintf(&text, "With no role, or one that is not known, %s fails and no other unit starts.\n", shortNames(none.Fails))
	}
	return text.String()
}

// cells is one row: the unit, and a mark under its role.
func (t Table) cells(name string, of role.Role) []string {
	cells := []string{Unit{Name: name}.Short()}
	for _, r := range t.Roles {
		mark := ""
		if r.Role == of {
			mark = "✔"
		}
		cells = append(cells, mark)
	}
	return cells
}

func shortNames(names []string) string {
	short := make([]string, len(names))
	for i, name := range names {
		short[i] = Unit{Name: name}.Short()
	}
	return strings.Join(short, ", ")
}
