package problem

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestString(t *testing.T) {
	tests := []struct {
		p    Problem
		want string
	}{
		{Problem{Text: "wrong"}, "wrong"},
		{Problem{File: "a.yaml", Text: "wrong"}, "a.yaml: wrong"},
		{Problem{File: "a.yaml", Line: 7, Text: "wrong"}, "a.yaml:7: wrong"},
		{Problem{Line: 7, Text: "wrong"}, "wrong"},
		{Problem{File: "a.yaml", Line: 7, Field: "x[3].mode", Text: "wrong", Hint: "write it in octal"},
			"a.yaml:7: x[3].mode: wrong (write it in octal)"},
		{Problem{File: "a", Severity: Warning, Text: "odd"}, "a: warning: odd"},
		{Problem{File: "a", Severity: Error, Rule: "not shown", Text: "wrong"}, "a: wrong"},
	}
	for _, tt := range tests {
		if got := tt.p.String(); got != tt.want {
			t.Errorf("%+v prints %q, want %q", tt.p, got, tt.want)
		}
	}
}

func TestList(t *testing.T) {
	var l List
	if l.Err() != nil {
		t.Errorf("the empty list is the error %v", l.Err())
	}
	l.Add(Problem{File: "b", Text: "odd", Severity: Warning})
	if l.Err() != nil {
		t.Errorf("a list of warnings is the error %v", l.Err())
	}
	l.Errorf("b", "field", "%d wrong", 2)
	l.Add(Problem{File: "a", Line: 10, Text: "ten"})
	l.Add(Problem{File: "a", Line: 9, Text: "nine"})
	if l[1].Severity != Error || l[2].Severity != Error {
		t.Errorf("an unset severity became %q and %q, want error", l[1].Severity, l[2].Severity)
	}
	l.Sort()
	var texts []string
	for _, p := range l {
		texts = append(texts, p.Text)
	}
	if want := []string{"nine", "ten", "odd", "2 wrong"}; !slices.Equal(texts, want) {
		t.Errorf("sorted to %v, want %v", texts, want)
	}
	if want := "a:9: nine\na:10: ten\nb: field: 2 wrong"; l.Err() == nil || l.Err().Error() != want {
		t.Errorf("the error is %v, want %q", l.Err(), want)
	}
}

func TestJSON(t *testing.T) {
	data, err := json.Marshal(Problem{File: "a", Line: 1, Severity: Error, Rule: "r", Text: "t"})
	if want := `{"file":"a","line":1,"severity":"error","rule":"r","text":"t"}`; err != nil || string(data) != want {
		t.Errorf("JSON is %s, %v, want %s", data, err, want)
	}
}
