package spec

import (
	"slices"
	"strings"
)

// carrier is how a flag gets to its program.
type carrier string

// The carriers. What a role file says comes last and wins, but for flags that are a list: a second one
// would be added to the first, so that those are changed where they stand.
const (
	byImage     carrier = "the image"
	byEtcd      carrier = "a variable that etcd reads"
	byVariable  carrier = "a variable of the unit"
	byArguments carrier = "the last arguments"
	byDropIn    carrier = "a drop-in of the unit"
)

// carrier says how a flag is given; words are those that give it.
func (p part) carrier(f flag, words []string, name string) carrier {
	isSet := f.bare != nil && f.bare.set
	switch {
	case isSet && slices.Equal(words, []string{"--" + name + "=" + f.bare.value}):
		return byImage
	case !isSet && f.origin.Kind == Default:
		return byImage
	case p.field == "etcd":
		return byEtcd
	case f.bare != nil && f.bare.variable != "" && len(words) == 1 && (f.origin.Kind != User || accumulates(f.upstream.Type)):
		return byVariable
	case isSet && accumulates(f.upstream.Type):
		return byDropIn
	}
	return byArguments
}

// etcdVariable is the variable that etcd reads a flag from.
func etcdVariable(name string) string {
	return etcdPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// escapeWord keeps a word whole where systemd splits the value of a variable into words: at white space,
// taking quotes and backslashes for what they mean (systemd.service(5), "Command lines").
func escapeWord(word string) string {
	var b strings.Builder
	for _, r := range word {
		if strings.ContainsRune(" \t'\"\\", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quoteValue writes the value of a variable in a file that EnvironmentFile= reads: in double quotes where
// it has more than plain characters (systemd.exec(5)).
func quoteValue(value string) string {
	if !strings.ContainsAny(value, "'\"\\`$;#") && strings.TrimSpace(value) == value {
		return value
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", `$`, `\$`).Replace(value) + `"`
}
