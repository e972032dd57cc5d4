package ready

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Asker requests a URL from every address of its host, and returns the body of a response with status 200. Errors have
// a reason. It is safe for concurrent use.
type Asker interface {
	Get(ctx context.Context, target *url.URL) ([]byte, error)
	// Patch merges JSON into an object (RFC 7386).
	Patch(ctx context.Context, target *url.URL, body string) error
}

// The annotations by which a machine says of its node what it is: Annotation has the machine file's ConfigHash, RootHashAnnotation
// the root hash of a sealed root. The machine writes them with its kubelet's certificate, so that they are worth as much as the
// machine's word: whoever is root on it can write another.
const (
	Annotation         = "hardtack.dev/config-hash"
	RootHashAnnotation = "hardtack.dev/root-hash"
)

// UninitializedTaint is of a node that the cloud's controller has not described yet: no pods come to it but those that tolerate
// the taint. Kubelets register with it where there is such a controller.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// Machine is the input of the checks of a machine.
type Machine struct {
	Config machine.Config
	Roles  role.Set
	// RootHash of a sealed root, in hexadecimal digits; empty is a root that is written to.
	RootHash string
	// Node returns the node's name. It is called when the name is needed, since hardtack-node decides it during the boot.
	Node func() (string, error)
	// Asker sends no client certificate, AsNode the kubelet's.
	Asker, AsNode Asker
}

// Checks returns the checks for a machine with these roles.
func (m Machine) Checks() []Check {
	var out []Check
	for _, c := range m.Roles.Checks() {
		out = append(out, Check{c.Name, c.Unit, m.probe(c)})
	}
	return out
}

// probe returns the function that runs a check; nil if the unit only has to be active.
func (m Machine) probe(c role.Check) func(context.Context) error {
	switch c.Probe {
	case role.UnitActive:
		return nil
	case role.APIReady:
		return m.get("https://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Config.API.Port))+"/readyz", ofName(c.Unit))
	case role.NodeReady:
		return m.node
	}
	return m.get(string(c.Probe), ofName(c.Unit))
}

// Units lists the units of the roles, each before the units that need it.
func (m Machine) Units() []string {
	var out []string
	for _, u := range m.Roles.Units() {
		out = append(out, u.Name)
	}
	return out
}

// get returns a check that a URL responds. A daemon that responds with an error, or not at all, fails with reason r. An
// untrusted certificate or a wrong clock keeps its own reason.
func (m Machine) get(text string, r reason.Reason) func(context.Context) error {
	return func(ctx context.Context) error {
		target, err := url.Parse(text)
		if err != nil {
			return err
		}
		_, err = m.Asker.Get(ctx, target)
		if of := reason.Of(err); err != nil && (of == reason.Unreachable || of == reason.NotReady) {
			return &reason.Error{Reason: r, Err: fmt.Errorf("%s: %w", text, err)}
		}
		return err
	}
}

// nodeObject is the part of a Node (v1) that the check needs.
type nodeObject struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Taints []struct {
			Key string `json:"key"`
		} `json:"taints"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct{ Type, Status, Reason, Message string }

// node checks that the API has this machine's Node with the condition Ready, and annotates it with what the machine is.
func (m Machine) node(ctx context.Context) error {
	name, err := m.Node()
	if err != nil {
		return reason.With(reason.NotRegistered, err)
	}
	target, err := url.Parse(m.Config.APIServer(m.Roles) + "/api/v1/nodes/" + name)
	if err != nil {
		return fmt.Errorf("the URL of node %s: %w", name, err)
	}
	text, err := m.AsNode.Get(ctx, target)
	if err != nil {
		if reason.Of(err) == reason.NotReady || reason.Of(err) == reason.File {
			return &reason.Error{Reason: reason.NotRegistered, Err: fmt.Errorf("asking for node %s: %w", name, err)}
		}
		return fmt.Errorf("asking for node %s: %w", name, err)
	}
	var n nodeObject
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	if err := n.ready(name); err != nil {
		return err
	}
	says := m.annotations(n.Metadata.Annotations)
	if len(says) == 0 {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": says}})
	if err != nil {
		return err
	}
	return m.AsNode.Patch(ctx, target, string(body))
}

// annotations are those that a node does not have as they should be. One that it should not have is nil, which removes it: the
// node of a machine that was made anew with the same name is still there.
func (m Machine) annotations(has map[string]string) map[string]any {
	says := map[string]any{}
	for key, want := range map[string]string{Annotation: m.Config.ConfigHash, RootHashAnnotation: m.RootHash} {
		switch {
		case has[key] == want:
		case want == "":
			says[key] = nil
		default:
			says[key] = want
		}
	}
	return says
}

// ready checks the condition Ready, and that the node takes pods as far as the cloud's controller goes: a refresh that did not wait
// for that would replace every machine that works by one that takes none, where the controller fails on the new ones.
func (n nodeObject) ready(name string) error {
	for _, c := range n.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		if c.Status == "True" {
			return n.initialized(name)
		}
		return reason.With(reason.NodeNotReady, fmt.Errorf("node %s: %s: %s", name, c.Reason, c.Message))
	}
	return reason.With(reason.NodeNotReady, errors.New("node "+name+" has no condition Ready yet"))
}

// initialized checks that the cloud's controller has taken its taint away.
func (n nodeObject) initialized(name string) error {
	for _, t := range n.Spec.Taints {
		if t.Key == UninitializedTaint {
			return &reason.Error{Reason: reason.NodeNotReady, Err: fmt.Errorf("node %s takes no pods: it waits for the cloud's controller", name),
				Next: "kubectl -n kube-system get pods shows the cloud's controller, and its log says why the node still has the taint " + UninitializedTaint}
		}
	}
	return nil
}
