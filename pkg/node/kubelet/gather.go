package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/envfile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Metadata is an instance metadata service. Identity returns the instance's identity document, Get the content of
// /latest/<path>. Both retry transient faults until ctx ends.
type Metadata interface {
	Identity(ctx context.Context) (imds.Identity, error)
	Get(ctx context.Context, path string) ([]byte, error)
}

// DefaultDeadline is how long the network and the metadata service may take. systemd starts the unit again after it;
// the deadline makes the console show the reason.
const DefaultDeadline = 2 * time.Minute

// Source has the sources of facts about the machine.
type Source struct {
	// Root is the root directory; "" is "/".
	Root  string
	Roles role.Set
	// Metadata is nil if the machine has no metadata service. Hardware is the instance id or the UUID that the
	// hardware reports; it may be empty.
	Metadata Metadata
	Hardware string
	// Link finds an interface by its name; nil is net.InterfaceByName.
	Link func(name string) (Link, error)
	// Deadline bounds the waits; 0 is DefaultDeadline. Status is called with the reason of each wait; it may be nil.
	Deadline time.Duration
	Status   func(text string)
	Log      *slog.Logger
}

// Gather collects the facts about the machine. Errors have a reason.
func Gather(ctx context.Context, s Source) (Facts, error) {
	s.defaults()
	ctx, cancel := context.WithTimeoutCause(ctx, s.Deadline, fmt.Errorf("not within %v", s.Deadline))
	defer cancel()
	f := Facts{Roles: s.Roles, CPUs: runtime.NumCPU(), Hardware: s.Hardware}
	var err error
	if f.Memory, err = s.memory(); err != nil {
		return Facts{}, err
	}
	if s.Roles.Has(role.Minions) {
		if err := s.nodeFiles(&f); err != nil {
			return Facts{}, err
		}
	}
	if f.Link, err = s.link(ctx); err != nil {
		return Facts{}, err
	}
	f.Hostname = s.hostname() // the network is up, so that a lease exists if the machine uses DHCP
	if s.Metadata == nil {
		return f, nil
	}
	if f.Instance, err = s.instance(ctx); err == nil {
		return f, nil
	}
	if f.Instance = s.remembered(); f.Instance == nil {
		return Facts{}, err
	}
	s.Log.WarnContext(ctx, "the metadata service does not answer: keeping its answers to an earlier boot", "instance", f.Instance.ID, "error", err)
	return f, nil
}

// nodeFiles reads the files that only a node has.
func (s *Source) nodeFiles(f *Facts) error {
	var errs [3]error
	var env []byte
	f.Kubelet, errs[0] = s.read("/etc/kubernetes/kubelet.yaml")
	f.Template, errs[1] = s.read(BaseTemplate)
	env, errs[2] = s.read(role.Minions.File())
	f.Override, _ = envfile.Parse(string(env)).Get("KUBELET_HOSTNAME")
	return errors.Join(errs[:]...)
}

// remembered returns the answers of the metadata service to an earlier boot of this hardware; nil if there are none. They
// let a node reboot during an outage of the service.
func (s *Source) remembered() *Instance {
	text, err := os.ReadFile(s.path(InstanceFile))
	var r remembered
	if err != nil || json.Unmarshal(text, &r) != nil || s.Hardware == "" || r.Hardware != s.Hardware {
		return nil
	}
	return &r.Instance
}

func (s *Source) defaults() {
	if s.Link == nil {
		s.Link = linkOf
	}
	if s.Deadline == 0 {
		s.Deadline = DefaultDeadline
	}
	if s.Status == nil {
		s.Status = func(string) {}
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
}

func (s *Source) path(name string) string { return filepath.Join("/", s.Root, name) }

// read reads a file that the image or the user data provides.
func (s *Source) read(name string) ([]byte, error) {
	data, err := os.ReadFile(s.path(name))
	return data, reason.With(reason.Config, err)
}

// unnamed is systemd's name of a host without a configured name.
const unnamed = "localhost"

// hostname is the name that the kernel has, or else the one that DHCP gave. networkd cannot set the latter: it would
// need hostnamed, and polkit for the permission, which the image does not have.
func (s *Source) hostname() string {
	text, err := os.ReadFile(s.path("/proc/sys/kernel/hostname"))
	name := strings.TrimSpace(string(text))
	if err == nil && name != "" && name != unnamed {
		return name
	}
	leases, _ := filepath.Glob(s.path("/run/systemd/netif/leases/*")) // the pattern is valid
	for _, file := range leases {
		lease, err := os.ReadFile(file)
		if hostname, _ := envfile.Parse(string(lease)).Get("HOSTNAME"); err == nil && hostname != "" {
			return hostname
		}
	}
	return name // nameOf refuses it with a reason
}

func (s *Source) memory() (int64, error) {
	text, err := os.ReadFile(s.path("/proc/meminfo"))
	if err != nil {
		return 0, err
	}
	return MemTotal(string(text))
}

// link waits for a default route whose interface has an address, since a lease takes a moment.
func (s *Source) link(ctx context.Context) (Link, error) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = 20*time.Millisecond, time.Second
	var last error
	l, err := backoff.Retry(ctx, func() (Link, error) {
		l, err := s.defaultLink()
		if err != nil && (last == nil || last.Error() != err.Error()) {
			last = err
			s.Status(reason.Status(err))
			s.Log.InfoContext(ctx, "waiting", "reason", string(reason.Of(err)), "cause", err.Error())
		}
		return l, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(0))
	if err != nil && last != nil {
		return Link{}, reason.Errorf(reason.Network, "%w: %w", last, context.Cause(ctx))
	}
	return l, err
}

func (s *Source) defaultLink() (Link, error) {
	text, err := os.ReadFile(s.path("/proc/net/route"))
	if err != nil {
		return Link{}, reason.With(reason.Network, err)
	}
	name := DefaultRoute(string(text))
	if name == "" {
		return Link{}, reason.Errorf(reason.Network, "no interface has a default route")
	}
	l, err := s.Link(name)
	if err == nil && !l.Addr.IsValid() {
		err = fmt.Errorf("interface %s has no IPv4 address", name)
	}
	return l, reason.With(reason.Network, err)
}

// linkOf returns an interface of this machine.
func linkOf(name string) (Link, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return Link{}, err
	}
	addrs, err := i.Addrs()
	if err != nil {
		return Link{}, err
	}
	l := Link{Name: name, MTU: i.MTU}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && !p.Addr().IsLinkLocalUnicast() {
			l.Addr = p.Addr()
			break
		}
	}
	return l, nil
}

// instance queries the metadata service.
func (s *Source) instance(ctx context.Context) (*Instance, error) {
	s.Status(reason.Status(reason.Errorf(reason.Metadata, "asking the instance metadata service")))
	document, err := s.Metadata.Identity(ctx)
	if err != nil {
		return nil, reason.Errorf(reason.Metadata, "reading the instance identity document: %w", err)
	}
	name, err := s.Metadata.Get(ctx, "meta-data/local-hostname")
	if err != nil {
		return nil, reason.Errorf(reason.Metadata, "reading the instance's private DNS name: %w", err)
	}
	// With a DHCP option set of several domains EC2 gives all of them, separated by blanks.
	words := strings.Fields(string(name))
	if len(words) == 0 || document.InstanceID == "" || document.AvailabilityZone == "" {
		return nil, reason.With(reason.Metadata, errors.New("the metadata service names no instance, zone or DNS name"))
	}
	return &Instance{ID: document.InstanceID, Zone: document.AvailabilityZone, Region: document.Region, Type: document.InstanceType, Name: words[0]}, nil
}
