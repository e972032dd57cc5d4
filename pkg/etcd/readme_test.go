package etcd

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateFlag = flag.Bool("update", false, "write the generated parts of README.md")

// TestReadme compares the tables of the document with those of the code; with -update it writes them.
func TestReadme(t *testing.T) {
	for name, lines := range map[string][]string{"rows": rowTable(), "steps": stepTable(t), "join": joinTable(), "hindrances": hindranceTable()} {
		text, err := os.ReadFile("README.md")
		if err != nil {
			t.Fatal(err)
		}
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->"
		before, rest, _ := strings.Cut(string(text), begin)
		got, after, found := strings.Cut(rest, end)
		if !found {
			t.Fatalf("README.md has no part between %q and %q", begin, end)
		}
		want := "\n" + strings.Join(lines, "\n") + "\n\n"
		if *updateFlag {
			if err := os.WriteFile("README.md", []byte(before+begin+want+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("README.md: the part %s is stale: run make generate (-want +got):\n%s", name, diff)
		}
	}
}

func rowTable() []string {
	lines := []string{"| row | what is seen | step | what to do about it |", "|---|---|---|---|"}
	for row := range rows {
		r := &rows[row]
		step := r.do.String()
		switch {
		case r.do == First || r.do == Run || r.do == Reopen:
			step += ", " + map[Clients]string{Closed: "closed", Open: "open"}[r.clients]
		case r.reason != "" && (r.do == Wait || r.do == Stop):
			step += " (" + r.reason + ")"
		}
		lines = append(lines, "| "+strings.Join([]string{r.name, r.when, step, r.next}, " | ")+" |")
	}
	return lines
}

// stepTable has each step with its comment in action.go.
func stepTable(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "action.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, decl := range file.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.CONST || len(texts) > 0 {
			continue
		}
		for _, spec := range d.Specs {
			if s := spec.(*ast.ValueSpec); s.Doc != nil {
				_, what, _ := strings.Cut(s.Doc.Text(), ": ")
				texts = append(texts, strings.Join(strings.Fields(what), " "))
			}
		}
	}
	if len(texts) != len(doNames) {
		t.Fatalf("%d of %d steps have a comment", len(texts), len(doNames))
	}
	lines := []string{"| step | what the machine does |", "|---|---|"}
	for i, text := range texts {
		lines = append(lines, "| "+doNames[i]+" | "+text+" |")
	}
	return lines
}

func joinTable() []string {
	lines := []string{"| step | when |", "|---|---|"}
	for _, row := range []struct {
		do   JoinDo
		when string
	}{
		{JoinStop, "a person has removed the member, and its data have the same place; or the cluster was formed by this member alone: a restore is the only way"},
		{JoinWait, "any of the hindrances below"},
		{JoinLock, "the cluster answers and this machine does not hold the lock"},
		{JoinBackup, "nothing hinders, there is a place for backups, and the newest verified one is older than " + BackupWithin.String()},
		{JoinRemove, "then, while an entry of the list has this member's URL or name: that one"},
		{JoinAdd, "then, when none has"},
		{JoinRecord, "this process has added the learner, and the record and the marker do not say so yet"},
		{JoinStart, "they do"},
		{JoinPromote, "it has a log, and says itself that it is this learner and has applied all that the leader had"},
		{JoinDone, "it has a log, and is a voter"},
	} {
		lines = append(lines, "| "+row.do.String()+" | "+row.when+" |")
	}
	return lines
}

func hindranceTable() []string {
	lines := []string{"| a replacement, a removal or a defragmentation waits because | what to do about it |", "|---|---|"}
	for h := range hindrances {
		if Hindrance(h) != NoHindrance {
			lines = append(lines, "| "+hindrances[h].cause+" | "+hindrances[h].next+" |")
		}
	}
	return lines
}
