package spec

import "slices"

// Program is the executable of a component, for tests that run it.
func Program(name string) string {
	for _, c := range components {
		if c.name == name {
			return c.executable
		}
	}
	return ""
}

// Releases lists the components of the lock that have the programs of all units in the table.
func Releases() (names []string) {
	for _, c := range components {
		if c.unit() != "" && !slices.Contains(names, c.release) {
			names = append(names, c.release)
		}
	}
	return names
}

// Decided reports whether a component's flag is no document's to set.
func Decided(component, flag string) bool {
	return decided(component, flag) || settled(component, flag)
}

// ComponentNames are the names of the components in a document.
func ComponentNames() (names []string) {
	for _, c := range components {
		names = append(names, c.name)
	}
	return names
}
