package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
)

// The gateway's services beside DHCP, DNS and metadata.
const (
	awsPort     = 80
	journalPort = 19532 // systemd-journal-remote's
)

// Machines makes a runner of QEMU virtual machines.
func Machines(ctx context.Context, s Surroundings) (Runner, error) {
	computer, err := qemu.Detect()
	if err != nil {
		return nil, err
	}
	network, err := vnet.New(ctx, vnet.Config{Subnet: subnet, Domain: domain, Resolver: s.Source, Log: s.Log})
	if err != nil {
		return nil, err
	}
	m := &machines{network: network, computer: computer, log: s.Log, journals: map[netip.Addr]io.Writer{}}
	if err := m.services(ctx, s); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// machines are QEMU processes on one virtual network.
type machines struct {
	network  *vnet.Network
	computer qemu.Host
	meta     *metadata.Service
	log      *slog.Logger
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu       sync.Mutex
	journals map[netip.Addr]io.Writer
}

var _ Runner = (*machines)(nil)

// services starts the network's services: metadata, the AWS APIs, and the receiver of journals.
func (m *machines) services(ctx context.Context, s Surroundings) error {
	ctx, m.cancel = context.WithCancel(ctx)
	meta, err := m.network.Listen(metadata.Address())
	if err != nil {
		return err
	}
	m.meta = metadata.New(s.Source, s.Log)
	m.tasks.Go(func() { m.ended("metadata", m.meta.Serve(ctx, meta)) })
	aws, err := m.network.Listen(m.awsAddress())
	if err != nil {
		return err
	}
	m.serve(ctx, "AWS", aws, s.AWS)
	images, err := m.network.Listen(netip.AddrPortFrom(m.network.Endpoints(), registryPort))
	if err != nil {
		return err
	}
	m.serve(ctx, "registry", images, readOnly(s.Registry))
	journals, err := m.network.Listen(netip.AddrPortFrom(m.network.Gateway(), journalPort))
	if err != nil {
		return err
	}
	m.tasks.Go(func() { m.ended("journals", m.receive(journals)) })
	return nil
}

// serve serves a handler to the machines until ctx ends.
func (m *machines) serve(ctx context.Context, service string, l net.Listener, h http.Handler) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	m.tasks.Go(func() { m.ended(service, server.Serve(l)) })
	m.tasks.Go(func() {
		<-ctx.Done()
		_ = server.Close() // no machine is left that waits for an answer
	})
}

// awsAddress is the address of the AWS APIs for machines.
func (m *machines) awsAddress() netip.AddrPort {
	return netip.AddrPortFrom(m.network.Endpoints(), awsPort)
}

// ended logs that a service has ended although it was not stopped.
func (m *machines) ended(service string, err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.Canceled) {
		m.log.Error("a service of the network has ended", "service", service, "error", err)
	}
}

// receive accepts journals from machines, and finds each machine by its address.
func (m *machines) receive(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		m.tasks.Go(func() {
			defer func() { _ = conn.Close() }()
			from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
			if err != nil {
				return
			}
			m.mu.Lock()
			to := m.journals[from.Addr().Unmap()]
			m.mu.Unlock()
			if to != nil {
				_ = readJournal(conn, to) // it ends with the machine, or at bytes that are no journal
			}
		})
	}
}

// Start powers a machine on.
func (m *machines) Start(ctx context.Context, l Launch) (Running, error) {
	var err error
	if l.Boot, err = l.Boot.Complete(); err != nil {
		return nil, err
	}
	port, err := m.network.Attach(vnet.Machine{Name: l.ID, Addr: l.Addr})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.journals[l.Addr] = l.Journal
	m.mu.Unlock()
	m.meta.SetFaults(l.ID, l.Fault.Metadata...)
	if l.Fault.NoTime {
		port.SetFault(vnet.Clock(), vnet.Silent)
	}
	machine, err := qemu.Start(ctx, m.config(l, port))
	if err == nil {
		err = machine.Console().Follow(l.Console)
	}
	if err != nil {
		if machine != nil {
			err = errors.Join(err, machine.Stop())
		}
		return nil, errors.Join(err, port.Detach())
	}
	return &powered{Machine: machine, port: port}, nil
}

// config returns the machine's QEMU configuration.
func (m *machines) config(l Launch, port *vnet.Port) qemu.Config {
	disks := []qemu.Disk{{Path: l.Boot.Path, Format: l.Boot.Format, Overlay: filepath.Join(l.Dir, OverlayFile)}}
	config := qemu.Config{
		Name: l.Group + " " + l.ID, Memory: l.Memory, CPUs: l.CPUs, Disks: disks, Arch: l.Boot.Arch, Firmware: l.Boot.Firmware, Reboots: true, Skew: l.Fault.Skew, Accel: l.Fault.Accel, Slots: l.Volumes,
		// Programs recognise EC2 by these.
		DMI:     qemu.DMI{BIOSVendor: "Amazon EC2", Vendor: "Amazon EC2", Product: l.Type, Serial: "ec2" + l.ID[len(l.ID)-9:]},
		Network: qemu.Network{Kind: qemu.Stream, MAC: port.Machine().MAC.String(), Socket: port.Socket()},
		Credentials: map[string][]byte{
			"hardtack.aws-endpoint": []byte("http://" + m.awsAddress().String()),
			// journald's unit denies all addresses, and a connection that is never answered would delay it.
			"systemd.unit-dropin.systemd-journald.service": []byte("[Service]\nIPAddressAllow=" + m.network.Gateway().String() + "\n"),
			"journal.forward_to_socket":                    fmt.Appendf(nil, "%s:%d", m.network.Gateway(), journalPort),
			"systemd.extra-unit." + shellUnit:              []byte(shellService),
			"systemd.unit-dropin.multi-user.target":        []byte("[Unit]\nWants=" + shellUnit + "\n"),
		},
	}
	if m.computer.Emulates(config) {
		Emulated(config.Credentials)
	}
	return config
}

// Emulated adds to a machine's credentials what its services need on emulated processors, which are many times slower than
// real ones: LeaderElection, and one processor for each Go program, since waking a thread on another emulated processor costs
// more than it saves. It comes with the machine's hardware, so that the user data is the same as anywhere.
func Emulated(credentials map[string][]byte) {
	credentials["tmpfiles.extra"] = []byte("f /run/hardtack-lab.env 0644 root root - " + LeaderElection + `\nGOMAXPROCS=1\n` + "\n")
	// A name that ends in a dash is every unit's that begins so.
	for _, unit := range []string{"kube-", "hardtack-", "konnectivity-", "etcd", "kubelet", "containerd", "flanneld"} {
		credentials["systemd.unit-dropin."+unit+".service"] = []byte("[Service]\nEnvironmentFile=-/run/hardtack-lab.env\n")
	}
}

// LeaderElection lets a control plane live on a busy computer: leader election ends a controller manager or a scheduler that
// could not renew its lease for 10 s, and an emulated API server is at times slower than that.
const LeaderElection = `LEADER_ELECT="--leader-elect-lease-duration=2m0s --leader-elect-renew-deadline=1m30s --leader-elect-retry-period=10s"`

// shellUnit is a root shell on the second serial line. It is in no image: the lab passes it to each machine as a
// credential, which only the owner of the machine's hardware can do.
const shellUnit = "hardtack-lab-shell.service"

const shellService = `[Unit]
Description=root shell on the second serial line, for hardtack lab shell
ConditionPathExists=/dev/ttyS1
[Service]
ExecStart=/bin/bash --login
Environment=TERM=linux HOME=/root
WorkingDirectory=/root
StandardInput=tty-force
StandardOutput=inherit
StandardError=inherit
TTYPath=/dev/ttyS1
TTYReset=yes
Restart=always
RestartSec=0
IgnoreSIGPIPE=no
KillMode=process
SendSIGHUP=yes
`

// Announce replaces what the metadata service announces to a machine.
func (m *machines) Announce(id string, n metadata.Notices) { m.meta.SetNotices(id, n) }

// Outside lists the packets that machines sent to addresses outside of the network.
func (m *machines) Outside() []Outside {
	list := []Outside{}
	for _, a := range m.network.Refused() {
		list = append(list, Outside{Machine: a.Machine, To: a.Dst, Proto: a.Proto, Packets: a.Packets})
	}
	return list
}

// Forward forwards a port of this computer into the network.
func (m *machines) Forward(ctx context.Context, host string, target func(context.Context) (netip.AddrPort, error)) (net.Addr, error) {
	return m.network.Forward(ctx, host, target)
}

// Close takes the network down.
func (m *machines) Close() error {
	m.cancel()
	err := m.network.Close()
	m.tasks.Wait()
	return err
}

// powered is a running machine with its port in the network.
type powered struct {
	*qemu.Machine
	port *vnet.Port
}

// Stop cuts the power and frees the machine's address.
func (p *powered) Stop() error { return errors.Join(p.Machine.Stop(), p.port.Detach()) }
