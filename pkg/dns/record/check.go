package record

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// labelForm is a DNS label as host names have them (RFC 1123), in lower case and of any length.
var labelForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)

const maxLabel = 63

func isLabel(text string) bool { return len(text) <= maxLabel && labelForm.MatchString(text) }

// maxName is how many characters a name may have, without the final dot (RFC 1035).
const maxName = 253

// validate reports everything about a policy and a fleet that prevents publishing.
func validate(f Fleet, p Policy) problem.List {
	var found problem.List
	checkPolicy(p, &found)
	checkLabel(f.Cluster, "", "cluster", "the cluster's name", &found)
	seen := map[string]bool{}
	for _, g := range f.Groups {
		checkGroup(f, g, &found)
		key := string(g.Role) + "/" + g.Name
		if seen[key] {
			found.Add(problem.Problem{Rule: "group-twice", Field: groupField(g),
				Text: fmt.Sprintf("the group is there twice as %s", g.Role),
				Hint: "group names are unique: read the groups once, and list a group of several roles once for each"})
		}
		seen[key] = true
	}
	if longest := serverSRV + "." + strings.TrimSuffix(p.Domain(f.Cluster), "."); len(longest) > maxName {
		found.Add(problem.Problem{Rule: "name-too-long", Field: "cluster",
			Text: fmt.Sprintf("the name %s has %d characters and DNS takes %d", longest, len(longest), maxName),
			Hint: "choose a shorter cluster name or zone"})
	}
	found.Sort()
	return found
}

func checkPolicy(p Policy, found *problem.List) {
	p = p.complete()
	if p.TTL < time.Second || p.TTL%time.Second != 0 {
		found.Add(problem.Problem{Rule: "ttl", Field: "policy.ttl", Text: fmt.Sprintf("a TTL of %s is not a whole number of seconds above 0", p.TTL), Hint: "write 5s"})
	}
	if p.Subset < 1 {
		found.Add(problem.Problem{Rule: "subset", Field: "policy.subset", Text: fmt.Sprintf("a subset of %d addresses is no answer", p.Subset),
			Hint: fmt.Sprintf("write a number from 1, or 0 for %d", DefaultSubset)})
	}
	for l := range strings.SplitSeq(strings.TrimSuffix(p.Suffix, "."), ".") {
		checkLabel(l, "", "policy.suffix", "the zone's label", found)
	}
	if p.Outputs == (Outputs{}) {
		found.Add(problem.Problem{Rule: "no-outputs", Field: "policy.outputs", Text: "the policy publishes nothing, so every record would be removed",
			Hint: "choose the roles, the internal or the public API name"})
	}
}

func checkGroup(f Fleet, g Group, found *problem.List) {
	field := groupField(g)
	if g.Name == "" {
		found.Add(problem.Problem{Rule: "group-name", Field: field, Text: "the group has no name", Hint: "give it one: the control record remembers groups by name"})
	}
	if _, err := role.Parse(string(g.Role)); err != nil {
		text := "the tag Role: " + err.Error()
		if g.Role == "" {
			text = "it has no tag Role"
		}
		found.Add(problem.Problem{Severity: problem.Warning, Rule: "role", Field: field,
			Text: text + "; the group gets no records, and those that it had stay as they are",
			Hint: "set the group's tag Role, or, if its machines are none of the cluster's, remove its tag " + role.TagCluster})
	}
	if g.Cluster != f.Cluster {
		found.Add(problem.Problem{Rule: "cluster", Field: field,
			Text: fmt.Sprintf("tag KubernetesCluster: %q is not the cluster that was read, %q", g.Cluster, f.Cluster),
			Hint: "set the group's tag KubernetesCluster to its cluster, or leave the group out of this one"})
		checkLabel(g.Cluster, field, "cluster", "tag KubernetesCluster:", found)
	}
	if g.Desired < 0 {
		found.Add(problem.Problem{Rule: "desired", Field: field, Text: fmt.Sprintf("the group wants %d machines", g.Desired), Hint: "write a number from 0"})
	}
	for _, m := range g.EtcdMembers {
		checkMember(m, field, problem.Error, found)
	}
	for i, m := range g.Members {
		if m.InstanceID == "" {
			found.Add(problem.Problem{Rule: "instance-id", Field: field, Text: fmt.Sprintf("machine %d of the group has no id", i+1),
				Hint: "give every machine an id that it alone has and keeps, such as its host name"})
		}
	}
}

// groupField is the field of findings about the group.
func groupField(g Group) string { return fmt.Sprintf("group %q", g.Name) }

func checkMember(name, field string, severity problem.Severity, found *problem.List) bool {
	if isLabel(name) && isLabel(memberPrefix+name) {
		return true
	}
	found.Add(problem.Problem{Severity: severity, Rule: "dns-label", Field: field,
		Text: fmt.Sprintf("etcd member %q makes no DNS label %s%s", name, memberPrefix, name), Hint: labelHint(name)})
	return false
}

func checkLabel(l, field, fallback, what string, found *problem.List) {
	if isLabel(l) {
		return
	}
	if field == "" {
		field = fallback
	}
	found.Add(problem.Problem{Rule: "dns-label", Field: field, Text: fmt.Sprintf("%s %q is not a DNS label", what, l), Hint: labelHint(l)})
}

// notLabel matches characters that are invalid in a label.
var notLabel = regexp.MustCompile(`[^a-z0-9]+`)

// labelHint describes a valid label, and proposes one that is similar to the text if possible.
func labelHint(text string) string {
	hint := "use 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at both ends"
	if s := strings.Trim(notLabel.ReplaceAllString(strings.ToLower(text), "-"), "-"); s != text && isLabel(s) {
		hint += ": " + s
	}
	return hint
}

// normalized returns the member with its addresses in canonical form and by family, without unreachable ones and
// without an invalid etcd member's name. Problems of one machine are warnings: they must not keep the others out of the
// records.
func normalized(g Group, m Member, p Policy, found *problem.List) Member {
	field := fmt.Sprintf("%s, machine %s", groupField(g), m.InstanceID)
	if m.EtcdMember != "" && !checkMember(m.EtcdMember, field, problem.Warning, found) {
		m.EtcdMember = ""
	}
	if m.Untagged {
		found.Add(problem.Problem{Severity: problem.Warning, Rule: "untagged", Field: field,
			Text: "the machine is in service and lacks the tag " + role.TagCluster + "=" + g.Cluster + "; it is published all the same",
			Hint: "tag it, and set PropagateAtLaunch on the group's tag: everything else finds machines by it"})
	}
	var v4, v6 netip.Addr
	for _, a := range []netip.Addr{m.Private, m.Private6} {
		switch a = publishable(a, field, p, found); {
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !v6.IsValid():
			v6 = a
		}
	}
	m.Private, m.Private6, m.Public = v4, v6, publishable(m.Public, field, p, found)
	if !v4.IsValid() && !v6.IsValid() && !m.Public.IsValid() {
		found.Add(problem.Problem{Severity: problem.Warning, Rule: "no-address", Field: field,
			Text: "the machine has no address and is left out", Hint: "see whether its network interface is attached"})
	}
	return m
}

// publishable returns the address in canonical form, or the zero Addr if it cannot be published.
func publishable(a netip.Addr, field string, p Policy, found *problem.List) netip.Addr {
	a = a.Unmap()
	if !a.IsValid() {
		return a
	}
	if a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Zone() != "" || a == p.Placeholder.Unmap() {
		found.Add(problem.Problem{Severity: problem.Warning, Rule: "address", Field: field,
			Text: fmt.Sprintf("address %s is not one that other machines can reach; it is left out", a),
			Hint: "give the machine's address on the cluster's network"})
		return netip.Addr{}
	}
	return a
}
