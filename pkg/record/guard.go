package record

import (
	"github.com/hardtack/packer-plugin-hardtack/pkg/problem"
)

// Guard decides what of the desired sets is published, given what is published now.
func Guard(want, have []Set, f Fleet, p Policy) ([]Set, problem.List) {
	if len(f.Groups) == 0 {
		return have, nil
	}
	return want, nil
}
