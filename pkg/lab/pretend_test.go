package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// testPlan is a master, which is an etcd member too, and two minions.
func testPlan() Plan {
	return Plan{
		Cluster: "demo", LaunchHook: "hardtack-ready", APIPort: 443, Store: "/hardtack/demo",
		UserData: func(group string, ca []byte) ([]byte, error) {
			return fmt.Appendf(nil, "#cloud-config\n# %s %d\n", group, len(ca)), nil
		},
		Groups: []Group{
			{Name: "masters", Scaling: "demo-masters", Roles: role.NewSet(role.Masters, role.Etcd), Size: 1, Member: "a", Members: []string{"a"}, Memory: 64, CPUs: 1},
			{Name: "minions", Scaling: "demo-minions", Roles: role.NewSet(role.Minions), Size: 2, Memory: 64, CPUs: 1},
		},
	}
}

// pretend makes machines that are real processes and do what a machine's agent does in the region: they read their
// metadata and user data, get their role's credentials and complete their launch hook by the AWS API. Nothing of an
// operating system runs in them. Orphans outlive their daemon, as machines do where the kernel cannot end them.
func pretend(orphans bool) func(context.Context, *Daemon) (Runner, error) {
	return func(_ context.Context, d *Daemon) (Runner, error) {
		return &pretender{daemon: d, orphans: orphans}, nil
	}
}

type pretender struct {
	daemon  *Daemon
	orphans bool
	// mute machines never complete their hook.
	mute bool
}

func (p *pretender) Outside() []Outside { return nil }
func (p *pretender) Close() error       { return nil }

// Forward gives an address at which nobody answers: there is no API server.
func (p *pretender) Forward(context.Context, string, func(context.Context) (netip.AddrPort, error)) (net.Addr, error) {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, nil
}

func (p *pretender) Start(ctx context.Context, l Launch) (Running, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &pretended{cmd: exec.Command(self, machineMode), ended: make(chan struct{})}
	if !p.orphans {
		m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = m.cmd.Wait() // it is always killed
		close(m.ended)
	}()
	if !p.mute {
		go func() {
			if err := p.boot(ctx, l); err != nil && ctx.Err() == nil {
				fmt.Fprintf(l.Console, "boot: %v\n", err)
			}
		}()
	}
	return m, nil
}

// boot is what a machine does until it works.
func (p *pretender) boot(ctx context.Context, l Launch) error {
	fmt.Fprint(l.Console, "[    0.000000] Linux version 6.12\r\n\x1b[0;32m  OK  \x1b[0m Finished \x1b[0;1;39mhardtack-userdata.service\x1b[0m…er data.\r\n")
	from := source{p.daemon}
	me, ok := from.Instance(l.Addr)
	for ; !ok; me, ok = from.Instance(l.Addr) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	keys, err := from.Credentials(ctx, me.ID, me.Role)
	if err != nil {
		return err
	}
	api := autoscaling.NewFromConfig(p.daemon.region.wire.principal(regionName, aws.Credentials{AccessKeyID: keys.AccessKeyID, SecretAccessKey: keys.SecretAccessKey, SessionToken: keys.Token}))
	hook, continued := p.daemon.plan.LaunchHook, "CONTINUE"
	group, _ := p.daemon.plan.group(l.Group)
	for {
		_, err := api.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &group.Scaling, LifecycleHookName: &hook, InstanceId: &me.ID, LifecycleActionResult: &continued,
		})
		if err == nil {
			fmt.Fprint(l.Console, `{"hardtack":"timeline","total":1}`+"\n")
			return nil
		}
		fmt.Fprintf(l.Console, `{"hardtack":"failed","unit":"hardtack-ready.service","reason":"hook","cause":%q,"next":"look"}`+"\n", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type pretended struct {
	cmd   *exec.Cmd
	ended chan struct{}
	once  sync.Once
}

func (m *pretended) PID() int               { return m.cmd.Process.Pid }
func (m *pretended) Ended() <-chan struct{} { return m.ended }
func (m *pretended) Shell() (io.ReadWriteCloser, error) {
	a, b := net.Pipe()
	go echo(b)
	return a, nil
}

func (m *pretended) Stop() error {
	m.once.Do(func() { _ = m.cmd.Process.Kill() })
	<-m.ended
	return nil
}

// echo is a shell that says everything back.
func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.Close()
}
