package machine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The forms of labels and taints, as Kubernetes documents them ("Labels and Selectors"): an optional DNS
// name of at most 253 bytes and a slash, then at most 63 bytes; a value may be empty.
var (
	wordForm  = newForm(63, `^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	effectSet = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
)

// ownLabels are the labels below kubernetes.io that a kubelet may give itself, and ownPrefixes the
// namespaces (with what ends in a dot and them): the list of the kubelet's --node-labels and of the
// NodeRestriction admission plug-in.
var (
	ownLabels = []string{
		"beta.kubernetes.io/arch", "beta.kubernetes.io/instance-type", "beta.kubernetes.io/os",
		"failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os",
		"node.kubernetes.io/instance-type", "topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
	ownPrefixes = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}
)

// CheckLabel returns an error, and a hint what to do, unless a kubelet may register its node with the label. It is the
// rule of NodeRestriction: apart from some exceptions, labels below kubernetes.io and k8s.io are reserved for clients
// that may write nodes, and a kubelet with any other does not start.
func CheckLabel(key, value string) (hint string, err error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	if value != "" && !wordForm.MatchString(value) {
		return "", fmt.Errorf("value %q: at most 63 letters, digits and -_. that begin and end with a letter or a digit", value)
	}
	namespace, _, ok := strings.Cut(key, "/")
	if !ok || !below(namespace, "kubernetes.io") && !below(namespace, "k8s.io") || slices.Contains(ownLabels, key) ||
		slices.ContainsFunc(ownPrefixes, func(p string) bool { return below(namespace, p) }) {
		return "", nil
	}
	return "choose a domain of your own, or label the node with kubectl once it is there", errors.New("a node may not give itself this label (NodeRestriction)")
}

// checkKey checks the form of a key of labels and taints.
func checkKey(key string) error {
	namespace, name, ok := strings.Cut(key, "/")
	if !ok {
		namespace, name = "", key
	}
	if ok && (!domainForm.MatchString(namespace)) || !wordForm.MatchString(name) {
		return fmt.Errorf("key %q is not of the form [domain/]name", key)
	}
	return nil
}

// below reports whether name is the domain or in it.
func below(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// Taint keeps pods off a node that do not tolerate it. Value may be empty.
type Taint struct {
	Key    string `yaml:"key" json:"key"`
	Value  string `yaml:"value,omitempty" json:"value,omitempty"`
	Effect string `yaml:"effect" json:"effect"`
}

// ParseTaint reads "key=value:Effect" or "key:Effect".
func ParseTaint(text string) (Taint, error) {
	pair, effect, ok := strings.Cut(text, ":")
	if !ok || !slices.Contains(effectSet, effect) {
		return Taint{}, fmt.Errorf("%q is not of the form key=value:Effect, where the effects are %s", text, strings.Join(effectSet, ", "))
	}
	key, value, _ := strings.Cut(pair, "=")
	if err := checkKey(key); err != nil {
		return Taint{}, err
	}
	if value != "" && !wordForm.MatchString(value) {
		return Taint{}, fmt.Errorf("value %q of taint %s is not a label's value", value, key)
	}
	return Taint{Key: key, Value: value, Effect: effect}, nil
}
