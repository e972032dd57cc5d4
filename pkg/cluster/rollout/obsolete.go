package rollout

import "slices"

// KeptVersions is how many of the newest versions of a launch template are kept in any case, so that a person can go back by more than
// one step.
const KeptVersions = 5

// Obsolete are the versions of the group's launch template that nothing needs any more: not the group for its next machine, not its
// machines, of which the version says what they are, not a refresh, and not a rollback. While a refresh is under way there are none, since
// AutoScaling may take it back to any version. all are the template's versions in ascending order.
func (g Group) Obsolete(all []Version) []Version {
	if g.Refresh.Active() || len(all) <= KeptVersions {
		return nil
	}
	needed := []int{g.Launches.Number, g.Wanted.Number}
	if g.Refresh != nil {
		needed = append(needed, g.Refresh.To)
	}
	for _, m := range g.Machines {
		needed = append(needed, m.From.Number)
	}
	for _, from := range []Version{all[len(all)-1], g.Wanted} {
		before, _ := Previous(all, from)
		needed = append(needed, before.Number)
	}
	return slices.DeleteFunc(slices.Clone(all[:len(all)-KeptVersions]), func(v Version) bool { return slices.Contains(needed, v.Number) })
}
