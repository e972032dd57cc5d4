package rollout

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ErrUnknownVersion means that no master's version of Kubernetes is known, so that no way from it can be.
var ErrUnknownVersion = errors.New("the masters' version of Kubernetes is not known")

// Hop is one minor version on the way of a cluster to another: masters first, then minions.
type Hop struct {
	// Minor is the version, as 1.35.
	Minor string
	// First are the groups, by their names in the document, that have to be refreshed before the masters: their kubelets are too old for
	// this version.
	First []string
}

// Way is the minor versions by which a cluster comes to another, as 1.36; none if every machine has it already. The error is a *SkewError
// if the way would lead back, and wraps ErrUnknownVersion if nobody knows from where it goes.
func (s State) Way(to string) ([]Hop, error) {
	toMajor, target, ok := minorOf("v" + to)
	if !ok {
		return nil, fmt.Errorf("%q is not a minor version of Kubernetes, such as 1.36", to)
	}
	oldest, newest := s.apis()
	major, from, ok := minorOf(newest)
	if !ok {
		return nil, fmt.Errorf("looking for a way to Kubernetes %s: %w", to, ErrUnknownVersion)
	}
	switch n := apart(newest, "v"+to); {
	case major != toMajor:
		return nil, fmt.Errorf("looking for a way from Kubernetes %s to %s: there is none between major versions", newest, to)
	case n < 0:
		return nil, &SkewError{Skews: []Skew{{Rule: GoesBack, Group: s.mastersGroup(), API: newest, Next: "v" + to}}}
	case apart(oldest, newest) == 0 && !s.lags(newest):
		from++ // nothing of this version is left to do
	}
	var hops []Hop
	for minor := from; minor <= target; minor++ {
		hop := Hop{Minor: fmt.Sprintf("%d.%d", major, minor)}
		if len(hops) == 0 { // a hop brings all kubelets to its version
			hop.First = s.tooOld("v" + hop.Minor)
		}
		hops = append(hops, hop)
	}
	return hops, nil
}

// apis are the oldest and the newest version of Kubernetes of the masters; empty if none is known.
func (s State) apis() (oldest, newest string) {
	oldest = s.OldestAPI()
	newest = oldest
	for _, g := range s.Groups {
		for _, v := range g.versions("") {
			if g.Roles.Has(role.Masters) && apart(newest, v) > 0 {
				newest = v
			}
		}
	}
	return oldest, newest
}

// mastersGroup is the name in the document of the first group of masters, of which there must be one.
func (s State) mastersGroup() string {
	return s.Groups[slices.IndexFunc(s.Groups, func(g Group) bool { return g.Roles.Has(role.Masters) })].Key
}

// lags reports whether a kubelet is of an earlier minor version.
func (s State) lags(version string) bool {
	return slices.ContainsFunc(s.Groups, func(g Group) bool {
		return g.Roles.Has(role.Minions) && slices.ContainsFunc(g.versions(""), func(v string) bool { return Newer(version, v) })
	})
}

// tooOld are the groups whose kubelets are too old for an API server.
func (s State) tooOld(api string) (groups []string) {
	for _, g := range s.Groups {
		if g.Roles.Has(role.Minions) && slices.ContainsFunc(g.versions(""), func(v string) bool { return apart(v, api) > kubeletLag }) {
			groups = append(groups, g.Key)
		}
	}
	return groups
}
