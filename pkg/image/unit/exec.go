package unit

import (
	"path"
	"slices"
	"strings"
)

// execs are the settings that name a program.
var execs = []string{
	"ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost",
}

// imageDirs are the directories whose files come with the image; files elsewhere are created at boot.
var imageDirs = []string{"/etc/", "/usr/"}

// execs finds programs, scripts and configuration files of Exec lines that the image lacks.
func (l *linter) execs(u Unit) {
	for _, name := range execs {
		for _, o := range u.Values(section(u), name) {
			l.exec(u, o)
		}
	}
}

func (l *linter) exec(u Unit, o Option) {
	words := splitWords(o.Value)
	if len(words) == 0 {
		l.report(u, o, RuleExec, "", "%s= names no program", o.Name)
		return
	}
	program := strings.TrimLeft(words[0], "@-:+!|")
	optional := strings.Contains(words[0][:len(words[0])-len(program)], "-")
	switch {
	case !path.IsAbs(program):
		l.report(u, o, RuleExec, "write the whole path: systemd would search, and not where a shell does",
			"%s= names %q, which is not an absolute path", o.Name, program)
	case !optional && !l.tree.Has(program):
		l.report(u, o, RuleExec, "add it to the lock or to images/packages",
			"%s= runs %s, which is not in the image", o.Name, program)
	}
	for _, file := range bakedFiles(words[1:]) {
		if !optional && !l.tree.Has(file) {
			l.report(u, o, RuleExec, "add it under images/rootfs", "%s= uses %s, which is not in the image", o.Name, file)
		}
	}
}

// bakedFiles returns the arguments, and values of flags, that are paths of the image. What has a
// variable or a specifier in it is known at boot only.
func bakedFiles(args []string) []string {
	var files []string
	for _, arg := range args {
		_, value, isFlag := strings.Cut(arg, "=")
		if !isFlag {
			value = arg
		}
		inImage := slices.ContainsFunc(imageDirs, func(dir string) bool { return strings.HasPrefix(value, dir) })
		if inImage && !strings.ContainsAny(value, "$% ") {
			files = append(files, value)
		}
	}
	return files
}

// splitWords splits a command line at white space outside of quotes. A quoted script gives its own words
// too, so that the programs that it runs by their path are seen.
func splitWords(line string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	flush := func() {
		if word.Len() > 0 {
			words = append(words, word.String())
		}
		word.Reset()
	}
	for _, r := range line {
		switch {
		case quote == 0 && (r == '\'' || r == '"') && word.Len() == 0:
			quote = r
		case r == quote:
			quote = 0
		case r == ' ' || r == '\t' || (quote != 0 && r == ';'):
			flush()
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return words
}

// pathAssertions are the assertions about paths of the image.
var pathAssertions = []string{"AssertPathExists", "AssertFileIsExecutable", "AssertPathIsDirectory", "AssertFileNotEmpty"}

// asserts finds assertions that every machine would fail.
func (l *linter) asserts(u Unit) {
	for _, name := range pathAssertions {
		for _, o := range u.Values("Unit", name) {
			operand := strings.TrimLeft(o.Value, "|!")
			if strings.Contains(o.Value[:len(o.Value)-len(operand)], "!") {
				continue
			}
			inImage := slices.ContainsFunc(imageDirs, func(dir string) bool { return strings.HasPrefix(operand, dir) })
			if inImage && !l.tree.Has(operand) {
				l.report(u, o, RuleAssert, "add it to the image, or drop the assertion",
					"%s= names %s, which is not in the image", o.Name, operand)
			}
		}
	}
}
