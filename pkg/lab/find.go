package lab

import (
	"fmt"
	"strings"
)

// Find returns the machine with this name: its instance id or a prefix of it, its address, its host name, or its group
// if exactly one machine of the group runs. If none or several match, the error lists the candidates.
func (s Status) Find(name string) (MachineStatus, error) {
	found := s.find(name)
	if len(found) == 1 {
		return found[0], nil
	}
	var list []string
	for _, m := range s.Machines {
		if m.Power != "off" {
			list = append(list, fmt.Sprintf("%s (%s, %s)", m.ID, m.Group, m.Address))
		}
	}
	what := "no machine is"
	if len(found) > 1 {
		what = fmt.Sprintf("%d machines are", len(found))
	}
	if len(list) == 0 {
		return MachineStatus{}, fmt.Errorf("%s called %q: no machine runs (hardtack lab status --all shows those that did)", what, name)
	}
	return MachineStatus{}, fmt.Errorf("%s called %q: there are %s", what, name, strings.Join(list, ", "))
}
