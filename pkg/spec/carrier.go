package spec

import (
	"slices"
	"strings"
)

// carrier is how a flag is passed to its program.
type carrier string

// The carriers. What a role file says comes last and wins, but for flags that are a list: a second one
// would be added to the first, so that those are changed where they stand.
const (
	byImage       carrier = "the image"
	byEnvironment carrier = "an environment variable that the program reads"
	byVariable    carrier = "a variable of the unit"
	byArguments   carrier = "the last arguments"
	byDropIn      carrier = "a drop-in of the unit"
	byAgent       carrier = "the machine's agent"
)

// carrier returns how a flag is passed; words are its words on a command line.
func (p resolved) carrier(f flag, words []string, name string) carrier {
	isSet := f.image != nil && f.image.set
	switch {
	case isSet && slices.Equal(words, []string{"--" + name + "=" + f.image.value}):
		return byImage
	case !isSet && (f.origin.Kind == Default || f.origin.Kind == ByMachine):
		return byImage
	case f.agent:
		return byAgent
	case p.envPrefix != "":
		return byEnvironment
	case f.image != nil && f.image.variable != "" && len(words) == 1 && (f.origin.Kind != User || accumulates(f.upstream.Type)):
		return byVariable
	case isSet && accumulates(f.upstream.Type):
		return byDropIn
	}
	return byArguments
}

// envVariable is the environment variable that the program reads a flag from.
func (c component) envVariable(name string) string {
	return c.envPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
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
