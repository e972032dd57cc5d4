package envfile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
)

// TestParse has the cases of systemd.exec(5), and the lines of the document that Hardtack comes from.
func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want envfile.Variables
	}{
		"nothing":             {"", nil},
		"the seed's":          {"CLUSTER_NAME=cncfdemo\nCLOUD_PROVIDER=--cloud-provider=aws\n", envfile.Variables{{"CLUSTER_NAME", "cncfdemo", 1}, {"CLOUD_PROVIDER", "--cloud-provider=aws", 2}}},
		"no newline":          {"A=b", envfile.Variables{{"A", "b", 1}}},
		"empty":               {"A=\nB=\"\"\n", envfile.Variables{{"A", "", 1}, {"B", "", 2}}},
		"comments":            {"# A=1\n; B=2\n  # C=3\nD=4 # no comment\n", envfile.Variables{{"D", "4 # no comment", 4}}},
		"a long comment":      {"# goes on \\\nA=1\n", envfile.Variables{{"A", "1", 2}}},
		"no assignment":       {"hello\nA=1\n", envfile.Variables{{"A", "1", 2}}},
		"blanks":              {"  A  =  b c  \n", envfile.Variables{{"A", "b c", 1}}},
		"single quotes":       {`A='b "c" \d '` + "\n", envfile.Variables{{"A", `b "c" \d `, 1}}},
		"double quotes":       {`A="b \"c\" \$d \\ \x"` + "\n", envfile.Variables{{"A", `b "c" $d \ \x`, 1}}},
		"quotes side by side": {`A='b' "c"` + "\n", envfile.Variables{{"A", "bc", 1}}},
		"quotes inside":       {`A=b"c"` + "\n", envfile.Variables{{"A", `b"c"`, 1}}},
		"two lines":           {"A=b \\\n  c\nB=1\n", envfile.Variables{{"A", "b   c", 1}, {"B", "1", 3}}},
		"lines in quotes":     {"A=\"b\nc\"\nB=1\n", envfile.Variables{{"A", "b\nc", 1}, {"B", "1", 3}}},
		"an escape":           {`A=b\ \"` + "\n", envfile.Variables{{"A", `b "`, 1}}},
		"carriage returns":    {"A=b\r\nB=c\r\n", envfile.Variables{{"A", "b", 1}, {"B", "c", 2}}},
		"not closed":          {"A=\"b", envfile.Variables{{"A", "b", 1}}},
		"twice":               {"A=1\nA=2\n", envfile.Variables{{"A", "1", 1}, {"A", "2", 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, envfile.Parse(tt.text)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestGet(t *testing.T) {
	v := envfile.Parse("A=1\nA=2\nB=\n")
	for name, want := range map[string]string{"A": "2", "B": "", "C": ""} {
		value, set := v.Get(name)
		if value != want || set != (name != "C") {
			t.Errorf("%s is %q, %v", name, value, set)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"A=b", "A='", "A=\"\\", "#\\", "A=\\\n", "\x00=\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		last := 0
		for _, v := range envfile.Parse(text) {
			if v.Line < last {
				t.Errorf("%q: line %d after %d", text, v.Line, last)
			}
			last = v.Line
		}
	})
}
