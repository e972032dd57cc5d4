package rollout

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// kubeletLag is how many minor versions a kubelet may be older than its API server. Before 1.25 it was two, and no image has such
// a kubelet. Source of this and of every other rule here: https://kubernetes.io/releases/version-skew-policy/, read in November 2026.
const kubeletLag = 3

// SkewRule is a rule of Kubernetes about versions that meet.
type SkewRule string

// The rules that a rollout can break.
const (
	// SkipsMinor is a control plane that would skip a minor version, or have API servers more than one apart.
	SkipsMinor SkewRule = "skips a minor version"
	// GoesBack is an API server that would be followed by one of an earlier minor version.
	GoesBack SkewRule = "goes back a minor version"
	// KubeletNewer is a kubelet that would be newer than an API server.
	KubeletNewer SkewRule = "kubelet newer than the API server"
	// KubeletTooOld is a kubelet that would be too much older than an API server.
	KubeletTooOld SkewRule = "kubelet too old for the API server"
)

// Skew is two versions that would meet, or follow each other, and must not.
type Skew struct {
	Rule SkewRule `json:"rule"`
	// Group is the group whose machines would break the rule, by its name in the document.
	Group string `json:"group"`
	// API is the version of an API server that there is, or that there would be. Next is the version that would follow it, of a rule about
	// API servers alone; Kubelet is the version of the kubelet that would meet it, of the other rules.
	API     string `json:"api"`
	Next    string `json:"next,omitempty"`
	Kubelet string `json:"kubelet,omitempty"`
}

func (s Skew) String() string {
	switch s.Rule {
	case SkipsMinor:
		return fmt.Sprintf("%s: there are API servers of %s, and the next would be of %s: Kubernetes skips no minor version, and API servers beside each other are at most one apart", s.Group, s.API, s.Next)
	case GoesBack:
		return fmt.Sprintf("%s: there are API servers of %s, and the next would be of %s: an API server does not go back a minor version, since it may not read what the newer one has written", s.Group, s.API, s.Next)
	case KubeletNewer:
		return fmt.Sprintf("%s: there would be kubelets of %s and API servers of %s: a kubelet is never newer", s.Group, s.Kubelet, s.API)
	}
	return fmt.Sprintf("%s: there would be kubelets of %s and API servers of %s: a kubelet is at most %d minor versions older", s.Group, s.Kubelet, s.API, kubeletLag)
}

// Between is the minor version to which a control plane goes first that would skip one, such as 1.35; empty if none was skipped.
func (s Skew) Between() string {
	if apart(s.API, s.Next) < 2 {
		return ""
	}
	major, minor, _ := minorOf(s.API)
	return fmt.Sprintf("%d.%d", major, minor+1)
}

// SkewError refuses a rollout after which, or during which, versions of Kubernetes would meet that it does not support together.
// Nothing was changed.
type SkewError struct{ Skews []Skew }

func (e *SkewError) Error() string {
	var lines []string
	for _, s := range e.Skews {
		lines = append(lines, s.String())
	}
	return "Kubernetes does not support these versions together:\n  " + strings.Join(lines, "\n  ")
}

// Known reports whether text is a version of Kubernetes, such as v1.36.3.
func Known(text string) bool { return semver.IsValid(text) }

// Newer reports whether version a is of a later minor version than b; false if one of them is not known.
func Newer(a, b string) bool { return apart(b, a) > 0 }

// minorOf is the minor version of a version; false if it is not known.
func minorOf(version string) (major, minor int, ok bool) {
	_, err := fmt.Sscanf(semver.MajorMinor(version), "v%d.%d", &major, &minor)
	return major, minor, err == nil
}

// otherMajor is further than two minor versions of one major version are apart.
const otherMajor = 1000

// apart is by how many minor versions to is later than from; negative if it is earlier, and 0 if one of them is not known.
func apart(from, to string) int {
	fromMajor, fromMinor, known := minorOf(from)
	toMajor, toMinor, ok := minorOf(to)
	if !known || !ok {
		return 0
	}
	return otherMajor*(toMajor-fromMajor) + toMinor - fromMinor
}

// Skews are the versions that would meet and must not, if the machines of some groups had other versions of Kubernetes: to has them by
// the groups' names in AutoScaling, and other groups stay as they are. The control plane is taken to be first, as a rollout has it. A
// version that is not known breaks no rule.
func (s State) Skews(to map[string]string) []Skew {
	var out []Skew
	add := func(k Skew) {
		if !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	for _, g := range s.ordered() {
		if g.Roles.Has(role.Masters) {
			s.controlSkews(g, to[g.Name], add)
		}
	}
	for _, g := range s.ordered() {
		if g.Roles.Has(role.Minions) {
			s.kubeletSkews(g, to, add)
		}
	}
	return out
}

// controlSkews compares the API servers that there are with those that a group is to have.
func (s State) controlSkews(g Group, target string, add func(Skew)) {
	for _, other := range s.Groups {
		if !other.Roles.Has(role.Masters) {
			continue
		}
		for _, m := range other.Machines {
			n := apart(m.Kubernetes, target)
			switch {
			case m.leaves():
			case n > 1 || n < -1 && other.Name != g.Name:
				add(Skew{Rule: SkipsMinor, Group: g.Key, API: m.Kubernetes, Next: target})
			case n < 0 && other.Name == g.Name && m.State == inService: // one that never came up can be taken back
				add(Skew{Rule: GoesBack, Group: g.Key, API: m.Kubernetes, Next: target})
			}
		}
	}
}

// kubeletSkews compares a group's kubelets with the API servers: those that it is to have with all that there will be, and those that it
// has with those that are to come, since these come first.
func (s State) kubeletSkews(g Group, to map[string]string, add func(Skew)) {
	target, present := to[g.Name], g.versions("")
	for _, masters := range s.Groups {
		if !masters.Roles.Has(role.Masters) {
			continue
		}
		next := to[masters.Name]
		for _, api := range masters.versions(next) {
			if Newer(target, api) {
				add(Skew{Rule: KubeletNewer, Group: g.Key, API: api, Kubelet: target})
			}
			kubelets := []string{target}
			if next != "" {
				kubelets = append(kubelets, present...)
			}
			for _, kubelet := range kubelets {
				if apart(kubelet, api) > kubeletLag {
					add(Skew{Rule: KubeletTooOld, Group: g.Key, API: api, Kubelet: kubelet})
				}
			}
		}
	}
}

// versions are the versions of Kubernetes of the group's machines that stay; where all are to have another, it alone.
func (g Group) versions(to string) []string {
	if to != "" {
		return []string{to}
	}
	var out []string
	for _, m := range g.Machines {
		if !m.leaves() && m.Kubernetes != "" {
			out = append(out, m.Kubernetes)
		}
	}
	return out
}

// OldestAPI is the oldest version of Kubernetes of the cluster's masters; empty if none is known.
func (s State) OldestAPI() string {
	oldest := ""
	for _, g := range s.Groups {
		if !g.Roles.Has(role.Masters) {
			continue
		}
		for _, v := range g.versions("") {
			if oldest == "" || semver.Compare(v, oldest) < 0 {
				oldest = v
			}
		}
	}
	return oldest
}
