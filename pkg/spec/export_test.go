package spec

// Program is the executable of a component, for tests that run it.
func Program(name string) string {
	for _, c := range components {
		if c.name == name {
			return c.executable
		}
	}
	return ""
}
