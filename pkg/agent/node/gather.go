package node

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

	"github.com/hardtack/packer-plugin-hardtack/pkg/agent/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Metadata is an instance metadata service: Get returns what stands under /latest/<path>, and waits out passing
// faults until ctx ends.
type Metadata interface {
	Get(ctx context.Context, path string) ([]byte, error)
}

// DefaultDeadline is how long the network and the metadata service may take. The unit tries again after
// it; what the deadline is for is that the console says why.
const DefaultDeadline = 2 * time.Minute

// Source is where facts come from.
type Source struct {
	// Root is the root directory; "" is "/".
	Root  string
	Roles role.Set
	// Metadata is nil where the machine has no metadata service. Hardware is what the hardware calls itself, or
	// empty.
	Metadata Metadata
	Hardware string
	// Link finds an interface; nil is the machine's own.
	Link func(name string) (Link, error)
	// Deadline bounds the waits; 0 is DefaultDeadline. Status is told what is waited for; nil tells nobody.
	Deadline time.Duration
	Status   func(text string)
	Log      *slog.Logger
}

// Gather finds out what the machine is.
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
	f.Hostname = s.hostname() // by now there is a lease, where there is one at all
	if s.Metadata == nil {
		return f, nil
	}
	if f.Instance, err = s.instance(ctx); err == nil {
		return f, nil
	}
	if f.Instance = s.remembered(); f.Instance == nil {
		return Facts{}, err
	}
	s.Log.WarnContext(ctx, "the metadata service does not answer: keeping what it said of this machine before", "instance", f.Instance.ID, "error", err)
	return f, nil
}

// nodeFiles reads what only a node has.
func (s *Source) nodeFiles(f *Facts) error {
	var errs [3]error
	var env []byte
	f.Kubelet, errs[0] = s.read("/etc/kubernetes/kubelet.yaml")
	f.Template, errs[1] = s.read(BaseTemplate)
	env, errs[2] = s.read(role.Minions.File())
	f.Override = Variable(string(env), "KUBELET_HOSTNAME")
	return errors.Join(errs[:]...)
}

// remembered is what the metadata service said of this hardware at an earlier boot, nil for nothing: a reboot during
// an outage must not keep a node away.
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

// read reads a file that the image or the user data must have brought.
func (s *Source) read(name string) ([]byte, error) {
	data, err := os.ReadFile(s.path(name))
	return data, reason.With(reason.Config, err)
}

// unnamed is what systemd calls a host that nobody has named.
const unnamed = "localhost"

// hostname is the kernel's, or where that is no name what DHCP gave. networkd would set that one itself, by way of
// hostnamed, but lacks the right to without polkit, which the image does not have.
func (s *Source) hostname() string {
	text, err := os.ReadFile(s.path("/proc/sys/kernel/hostname"))
	name := strings.TrimSpace(string(text))
	if err == nil && name != "" && name != unnamed {
		return name
	}
	leases, _ := filepath.Glob(s.path("/run/systemd/netif/leases/*")) // the pattern is a good one
	for _, file := range leases {
		lease, err := os.ReadFile(file)
		if given := Variable(string(lease), "HOSTNAME"); err == nil && given != "" {
			return given
		}
	}
	return name // which is then refused, with the reason
}

func (s *Source) memory() (int64, error) {
	text, err := os.ReadFile(s.path("/proc/meminfo"))
	if err != nil {
		return 0, err
	}
	return MemTotal(string(text))
}

// link waits for a default route whose interface has an address: a lease takes a moment.
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

// linkOf reads an interface of this machine.
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

// instance asks the metadata service.
func (s *Source) instance(ctx context.Context) (*Instance, error) {
	s.Status(reason.Status(reason.Errorf(reason.Metadata, "asking the instance metadata service")))
	text, err := s.Metadata.Get(ctx, "dynamic/instance-identity/document")
	var document struct{ InstanceID, AvailabilityZone, Region, InstanceType string }
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
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
