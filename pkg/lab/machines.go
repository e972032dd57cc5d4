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

	"github.com/hardtack/packer-plugin-hardtack/pkg/qemu"
	"github.com/hardtack/packer-plugin-hardtack/pkg/vnet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/vnet/metadata"
)

// The gateway's services beside DHCP, DNS and metadata.
const (
	awsPort     = 80
	journalPort = 19532 // systemd-journal-remote's
)

// Machines makes a runner of virtual machines.
func Machines(ctx context.Context, d *Daemon) (Runner, error) {
	if _, err := qemu.Detect(); err != nil {
		return nil, err
	}
	network, err := vnet.New(ctx, vnet.Config{Subnet: subnet, Domain: domain, Resolver: source{d}, Log: d.log})
	if err != nil {
		return nil, err
	}
	m := &machines{network: network, log: d.log, journals: map[netip.Addr]io.Writer{}}
	if err := m.services(ctx, d); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// machines are QEMU processes on one network.
type machines struct {
	network *vnet.Network
	meta    *metadata.Service
	log     *slog.Logger
	cancel  context.CancelFunc
	tasks   sync.WaitGroup

	mu       sync.Mutex
	journals map[netip.Addr]io.Writer
}

var _ Runner = (*machines)(nil)

// services starts what machines find in their network: metadata, the AWS APIs, and a place for their journals.
func (m *machines) services(ctx context.Context, d *Daemon) error {
	ctx, m.cancel = context.WithCancel(ctx)
	meta, err := m.network.Listen(metadata.Address())
	if err != nil {
		return err
	}
	m.meta = metadata.New(source{d}, d.log)
	m.tasks.Go(func() { m.ended("metadata", m.meta.Serve(ctx, meta)) })
	aws, err := m.network.Listen(m.awsAddress())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.region.account.Handler(), ReadHeaderTimeout: time.Minute}
	m.tasks.Go(func() { m.ended("AWS", server.Serve(aws)) })
	m.tasks.Go(func() {
		<-ctx.Done()
		_ = server.Close() // nobody waits for its answers any more
	})
	journals, err := m.network.Listen(netip.AddrPortFrom(m.network.Gateway(), journalPort))
	if err != nil {
		return err
	}
	m.tasks.Go(func() { m.ended("journals", m.receive(journals)) })
	return nil
}

// awsAddress is where machines find the AWS APIs.
func (m *machines) awsAddress() netip.AddrPort {
	return netip.AddrPortFrom(m.network.Endpoints(), awsPort)
}

// ended tells of a service that has ended although it was not to.
func (m *machines) ended(service string, err error) {
	if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, context.Canceled) {
		m.log.Error("a service of the network has ended", "service", service, "error", err)
	}
}

// receive takes the journals that machines send, each known by its address.
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
				_ = readJournal(conn, to) // it ends with the machine, or with what is no journal
			}
		})
	}
}

// Start powers a machine on.
func (m *machines) Start(ctx context.Context, l Launch) (Running, error) {
	port, err := m.network.Attach(vnet.Machine{Name: l.ID, Addr: l.Addr})
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	m.journals[l.Addr] = l.Journal
	m.mu.Unlock()
	m.meta.SetFaults(l.ID, l.Fault.Metadata...)
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

// config is the machine as QEMU is told.
func (m *machines) config(l Launch, port *vnet.Port) qemu.Config {
	disks := []qemu.Disk{{Path: l.Boot.Path, Format: l.Boot.Format, Overlay: filepath.Join(l.Dir, OverlayFile)}}
	for _, d := range l.Disks {
		disks = append(disks, qemu.Disk{Path: d.Path, Serial: d.Serial, Writable: true})
	}
	return qemu.Config{
		Name: l.Group + " " + l.ID, Memory: l.Memory, CPUs: l.CPUs, Disks: disks, Firmware: l.Boot.Firmware, Reboots: true, Skew: l.Fault.Skew,
		// By these a program tells that it is on EC2.
		DMI:     qemu.DMI{BIOSVendor: "Amazon EC2", Vendor: "Amazon EC2", Product: machineType, Serial: "ec2" + l.ID[len(l.ID)-9:]},
		Network: qemu.Network{Kind: qemu.Stream, MAC: port.Machine().MAC.String(), Socket: port.Socket()},
		Credentials: map[string][]byte{
			"hardtack.aws-endpoint": []byte("http://" + m.awsAddress().String()),
			// journald's unit lets it reach no address, and a connection that is never answered would hold it up.
			"systemd.unit-dropin.systemd-journald.service": []byte("[Service]\nIPAddressAllow=" + m.network.Gateway().String() + "\n"),
			"journal.forward_to_socket":                    fmt.Appendf(nil, "%s:%d", m.network.Gateway(), journalPort),
			"systemd.extra-unit." + shellUnit:              []byte(shellService),
			"systemd.unit-dropin.multi-user.target":        []byte("[Unit]\nWants=" + shellUnit + "\n"),
		},
	}
}

// shellUnit is a root shell on the second serial line. It is in no image: each machine of a lab is given it as a
// credential, which only who owns the machine's hardware can do.
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

// Outside lists what machines wanted from outside.
func (m *machines) Outside() []Outside {
	list := []Outside{}
	for _, a := range m.network.Refused() {
		list = append(list, Outside{Machine: a.Machine, To: a.Dst, Proto: a.Proto, Packets: a.Packets})
	}
	return list
}

// Forward is the network's.
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

// powered is a machine with its place in the network.
type powered struct {
	*qemu.Machine
	port *vnet.Port
}

// Stop cuts the power and frees the machine's address.
func (p *powered) Stop() error { return errors.Join(p.Machine.Stop(), p.port.Detach()) }
