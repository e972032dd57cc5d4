package ready

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Asker asks a URL, at every address of its host, and returns the body of an answer 200; errors have a reason.
// It is safe for concurrent use.
type Asker interface {
	Get(ctx context.Context, target *url.URL) ([]byte, error)
	// Patch merges JSON into an object (RFC 7386).
	Patch(ctx context.Context, target *url.URL, body string) error
}

// The daemons' own addresses for questions about their health; both are on the machine alone.
const (
	etcdHealth    = "http://127.0.0.1:2381/readyz"
	kubeletHealth = "http://127.0.0.1:10248/healthz"
)

// Annotation is what a node carries of the machine file's ConfigHash.
const Annotation = "hardtack.dev/config-hash"

// Machine is what the checks of one machine need to know.
type Machine struct {
	Config machine.Config
	Roles  role.Set
	// Node returns the node's name; it is asked when it is needed, since hardtack-node decides it.
	Node func() (string, error)
	// Asker asks as nobody, AsNode with the kubelet's certificate.
	Asker, AsNode Asker
}

// Checks lists what must work on a machine of these roles.
func (m Machine) Checks() []Check {
	var out []Check
	if m.Roles.Has(role.Etcd) {
		out = append(out, Check{"etcd", "etcd.service", m.get(etcdHealth, reason.Etcd)})
	}
	if m.Roles.Has(role.Masters) {
		local := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(m.Config.API.Port)) + "/readyz"
		out = append(out,
			Check{"api", "kube-apiserver.service", m.get(local, reason.API)},
			Check{"controllers", "kube-controller-manager.service", nil},
			Check{"scheduler", "kube-scheduler.service", nil},
			Check{"addons", "hardtack-addons.service", nil})
	}
	if m.Roles.Has(role.Minions) {
		out = append(out,
			Check{"kubelet", "kubelet.service", m.get(kubeletHealth, reason.Kubelet)},
			Check{"proxy", "kube-proxy.service", nil},
			Check{"network", "flanneld.service", nil},
			Check{"node", "kubelet.service", m.node})
	}
	return out
}

// Units lists the units of the roles, so that the first that is not there is the cause of what comes after it:
// a master's certificates, its etcd and its API come before the token that its own kubelet waits for.
func (m Machine) Units() []string {
	var out []string
	for _, u := range []struct {
		role role.Role
		unit string
	}{
		{role.Etcd, "hardtack-certs-etcd.service"}, {role.Masters, "hardtack-certs-masters.service"},
		{role.Etcd, "etcd.service"}, {role.Masters, "kube-apiserver.service"},
		{role.Masters, "kube-controller-manager.service"}, {role.Masters, "kube-scheduler.service"},
		{role.Masters, "hardtack-addons.service"}, {role.Masters, "hardtack-controller.service"},
		{role.Minions, "hardtack-node.service"}, {role.Minions, "hardtack-bootstrap.service"},
		{role.Minions, "containerd.service"}, {role.Minions, "hardtack-images.service"}, {role.Minions, "kubelet.service"},
		{role.Minions, "kube-proxy.service"}, {role.Minions, "flanneld.service"},
	} {
		if m.Roles.Has(u.role) {
			out = append(out, u.unit)
		}
	}
	return out
}

// get is a check that a URL answers. What answers that it is not ready, or not at all, is the daemon's fault; what
// cannot be trusted, or the clock's, keeps its own reason.
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

// nodeObject is the part of a Node (v1) that counts here.
type nodeObject struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Status struct {
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct{ Type, Status, Reason, Message string }

// node checks that the API has this machine's Node and calls it ready, and gives it the hash of its configuration.
func (m Machine) node(ctx context.Context) error {
	name, err := m.Node()
	if err != nil {
		return reason.With(reason.NotRegistered, err)
	}
	host := net.JoinHostPort("masters."+m.Config.Domain(), strconv.Itoa(m.Config.API.Port))
	target := &url.URL{Scheme: "https", Host: host, Path: "/api/v1/nodes/" + name}
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
	if n.Metadata.Annotations[Annotation] == m.Config.ConfigHash {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{Annotation: m.Config.ConfigHash}}})
	if err != nil {
		return err
	}
	return m.AsNode.Patch(ctx, target, string(body))
}

// ready reads the condition Ready.
func (n nodeObject) ready(name string) error {
	for _, c := range n.Status.Conditions {
		if c.Type != "Ready" {
			continue
		}
		if c.Status == "True" {
			return nil
		}
		return reason.With(reason.NodeNotReady, fmt.Errorf("node %s: %s: %s", name, c.Reason, c.Message))
	}
	return reason.With(reason.NodeNotReady, errors.New("node "+name+" has no condition Ready yet"))
}
