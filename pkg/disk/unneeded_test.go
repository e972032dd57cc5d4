//go:build linux

package disk

import (
	"debug/elf"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// debianRoot has packages with their files: the content of a file, or empty for a directory.
func debianRoot(t *testing.T, packages map[string]map[string]string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, files := range packages {
		list := "/.\n"
		for file, content := range files {
			list += "/" + file + "\n"
			if content == "" {
				if err := os.MkdirAll(filepath.Join(root, file), 0o755); err != nil {
					t.Fatal(err)
				}
				continue
			}
			write(file, content)
		}
		if name != "" {
			write(sealedPackageBase+"/info/"+name+".list", list)
		}
	}
	return root
}

// without is what a sealed root does without, and what the bake says of it.
func without(t *testing.T, root string, named ...string) (gone []string, said string) {
	t.Helper()
	paths, err := Composer{Root: root, Options: Options{Sealed: &Sealed{Packages: named}, Progress: func(line string) { said += line + "\n" }}}.unneeded()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(paths)), said
}

func unneededPackages() map[string]map[string]string {
	return map[string]map[string]string{
		"apt":               {"usr": "", "usr/bin": "", "usr/bin/apt-get": "x", "usr/lib/apt": "", "usr/lib/apt/methods": "x", "var": "", "var/lib": "", "var/lib/apt": "", "usr/share/doc": "", "usr/share/shared": ""},
		"libapt-pkg7.0:any": {"usr/lib/libapt-pkg.so.7.0": "x"},
		"perl-base":         {"usr/bin/perl": "x", "usr/lib/perl-base": "", "usr/lib/perl-base/strict.pm": "x"},
		"libpam-runtime":    {"usr/sbin/pam-auth-update": "#!/usr/bin/perl -w\n", "etc/pam.conf": "x", "usr/share/shared": ""},
		"dpkg":              {"usr/bin/dpkg": "#!/bin/sh\n", "var/lib/other": ""},
		"":                  {"var/lib/apt/extended_states": "x", "var/lib/apt/lists": "", "var/lib/other/state": "x", "usr/local/bin/own": "#!/bin/sh\n"},
	}
}

// TestUnneeded: files of what installs and configures are not on a sealed disk, nor what it has written; what it shares is.
func TestUnneeded(t *testing.T) {
	gone, said := without(t, debianRoot(t, unneededPackages()))
	want := []string{
		"usr/bin/apt-get", "usr/bin/perl", "usr/lib/apt", "usr/lib/apt/methods", "usr/lib/libapt-pkg.so.7.0", "usr/lib/perl-base", "usr/lib/perl-base/strict.pm",
		"usr/sbin/pam-auth-update", "usr/share/doc", "var/lib/apt", "var/lib/apt/extended_states", "var/lib/apt/lists",
	}
	if diff := cmp.Diff(want, gone); diff != "" {
		t.Error(diff)
	}
	if want := "Without apt, libapt-pkg7.0, perl-base: nothing is installed or configured on a sealed root\n"; said != want {
		t.Errorf("it said %q", said)
	}
}

// TestUnneededNamed: what the template names stays.
func TestUnneededNamed(t *testing.T) {
	gone, said := without(t, debianRoot(t, unneededPackages()), "apt")
	if slices.Contains(gone, "usr/bin/apt-get") || slices.Contains(gone, "var/lib/apt/extended_states") || !slices.Contains(gone, "usr/bin/perl") {
		t.Errorf("it does without %v", gone)
	}
	if !strings.Contains(said, "With apt: the template names it\n") {
		t.Errorf("it said %q", said)
	}
}

// TestUnneededScript: a script that nobody knows of has its interpreter, by either of two ways to name it, and that one's own scripts
// stay too.
func TestUnneededScript(t *testing.T) {
	for _, start := range []string{"#!/usr/bin/perl\n", "#! /usr/bin/env perl\n", "#!/usr/bin/perl"} {
		packages := unneededPackages()
		packages["exiftool"] = map[string]string{"usr/bin/exiftool": start}
		gone, said := without(t, debianRoot(t, packages))
		if slices.Contains(gone, "usr/bin/perl") || slices.Contains(gone, "usr/sbin/pam-auth-update") || !slices.Contains(gone, "usr/bin/apt-get") {
			t.Errorf("%q: it does without %v", start, gone)
		}
		if !strings.Contains(said, "With perl-base: /usr/bin/exiftool needs /usr/bin/perl\n") {
			t.Errorf("%q: it said %q", start, said)
		}
	}
}

// TestUnneededLibrary: a program that is linked to a library has it, whatever package that is in.
func TestUnneededLibrary(t *testing.T) {
	name, err := exec.LookPath("dpkg") // linked to the C library on every Debian
	if err != nil {
		t.Skipf("needs a program that is linked: %v", err)
	}
	program, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	libraries, err := program.ImportedLibraries()
	if err != nil || len(libraries) == 0 || program.Close() != nil {
		t.Fatalf("%s is linked to %v: %v", name, libraries, err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	packages := unneededPackages()
	packages["libapt-pkg7.0:any"]["usr/lib/"+libraries[0]] = "x"
	packages["other"] = map[string]string{"usr/bin/linked": string(content)}
	gone, said := without(t, debianRoot(t, packages))
	if slices.Contains(gone, "usr/lib/"+libraries[0]) || slices.Contains(gone, "usr/lib/libapt-pkg.so.7.0") {
		t.Errorf("it does without %v", gone)
	}
	if want := "With libapt-pkg7.0: /usr/bin/linked needs /usr/lib/" + libraries[0] + "\n"; !strings.Contains(said, want) {
		t.Errorf("it said %q", said)
	}
}

// TestUnneededElsewhere: a root without a list of packages is taken as it is.
func TestUnneededElsewhere(t *testing.T) {
	gone, said := without(t, t.TempDir())
	if len(gone) > 0 || said != "" {
		t.Errorf("of a root without packages it does without %v: %s", gone, said)
	}
}
