package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	static "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/hardtack/packer-plugin-hardtack/images"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
	"github.com/hardtack/packer-plugin-hardtack/units"
)

// testCluster is a master, which is an etcd member too, and two minions.
const testCluster = `apiVersion: hardtack.dev/v1
kind: Cluster
name: demo
groups:
- {name: masters, roles: [masters, etcd], members: [a]}
- {name: minions, roles: [minions], size: 2}
`

func testPlan() (Plan, error) { return planOf(testCluster) }

// planOf is the plan of a document.
func planOf(document string) (Plan, error) {
	image, err := spec.ReadImage(units.FS, images.FS)
	if err != nil {
		return Plan{}, err
	}
	cluster, problems := spec.Parse("cluster.yaml", []byte(document))
	if err := problems.Err(); err != nil {
		return Plan{}, err
	}
	complete, problems := cluster.Complete(image)
	if err := problems.Err(); err != nil {
		return Plan{}, err
	}
	return PlanOf(complete)
}

// planned is testPlan's.
func planned(t *testing.T) Plan {
	t.Helper()
	p, err := testPlan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pretend makes machines that are real processes and make the same calls in the region as a machine's agent: they read
// their metadata and user data, get their role's credentials and complete their launch hook by the AWS API; a minion's is completed
// with a master's. No operating system runs in them. Orphans outlive their daemon, as machines do if the kernel cannot end them.
func pretend(plan Plan, orphans bool) func(context.Context, Surroundings) (Runner, error) {
	return func(_ context.Context, s Surroundings) (Runner, error) {
		return &pretender{Surroundings: s, plan: plan, api: httptest.NewServer(s.AWS), orphans: orphans}, nil
	}
}

type pretender struct {
	Surroundings
	plan    Plan
	api     *httptest.Server
	orphans bool
	// mute machines never complete their hook.
	mute bool

	mu sync.Mutex
	// masters are the credentials of machines that are masters, the newest last.
	masters []metadata.Credentials
}

func (p *pretender) Outside() []Outside { return nil }

// Announce does nothing: these machines ask no metadata service for notices.
func (p *pretender) Announce(string, metadata.Notices) {}

func (p *pretender) Close() error { p.api.Close(); return nil }

// Forward returns an address at which nothing listens, since no API server runs.
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

// boot is the life of a machine until it works.
func (p *pretender) boot(ctx context.Context, l Launch) error {
	fmt.Fprint(l.Console, "[    0.000000] Linux version 6.12\r\n")
	if err := (timeline.Progress{Phase: timeline.PhaseUserData}).Write(l.Console); err != nil {
		return err
	}
	me, ok := p.Source.Instance(l.Addr)
	for ; !ok; me, ok = p.Source.Instance(l.Addr) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	keys, err := p.Source.Credentials(ctx, me.ID, me.Role)
	if err != nil {
		return err
	}
	hook, continued := p.plan.LaunchHook(), "CONTINUE"
	group, _ := p.plan.group(l.Group)
	if p.plan.Volume(group) {
		if err := p.attach(ctx, me.ID, group.Member, keys); err != nil {
			return err
		}
	}
	scaling := p.plan.AutoScaling(group)
	for {
		_, err := p.scaling(p.launcher(group, keys)).CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName: &scaling, LifecycleHookName: &hook, InstanceId: &me.ID, LifecycleActionResult: &continued,
		})
		if err == nil {
			return timeline.Timeline{Schema: timeline.Schema}.Write(l.Console)
		}
		if err := reason.Explain("hardtack-ready.service", reason.With(reason.Hook, err)).Write(l.Console); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *pretender) scaling(keys metadata.Credentials) *autoscaling.Client {
	return autoscaling.New(autoscaling.Options{
		Region: regionName, BaseEndpoint: &p.api.URL, Credentials: static.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.Token),
	})
}

// launcher returns the credentials that complete the launch of a group's machine which has keys: its own, which are refused for a
// minion, or those of a master if there is one.
func (p *pretender) launcher(group spec.Group, keys metadata.Credentials) metadata.Credentials {
	p.mu.Lock()
	defer p.mu.Unlock()
	if group.Roles.Has(role.Masters) {
		p.masters = append(p.masters, keys)
	}
	if n := len(p.masters); n > 0 && group.Roles.LaunchedByMasters() {
		return p.masters[n-1]
	}
	return keys
}

// attach attaches the volume of the machine's member with the role's permissions, and waits until it has it.
func (p *pretender) attach(ctx context.Context, machine, member string, keys metadata.Credentials) error {
	api := ec2.New(ec2.Options{
		Region: regionName, BaseEndpoint: &p.api.URL, Credentials: static.NewStaticCredentialsProvider(keys.AccessKeyID, keys.SecretAccessKey, keys.Token),
	})
	tag := types.Filter{Name: aws.String("tag:" + role.TagEtcdMember), Values: []string{member}}
	for {
		out, err := api.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{tag}})
		if err != nil {
			return err
		}
		for _, v := range out.Volumes {
			if len(v.Attachments) == 0 {
				// Refused where another machine was first, or EC2 does not know yet that this one runs.
				_, _ = api.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: v.VolumeId, InstanceId: &machine, Device: aws.String("/dev/sdf")})
			} else if a := v.Attachments[0]; *a.InstanceId == machine && a.State == types.VolumeAttachmentStateAttached {
				return nil
			}
		}
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
	mu    sync.Mutex
	// plugged are the locked files of drives, by serial number.
	plugged map[string]*os.File
}

// Attach locks the file, as QEMU does.
func (m *pretended) Attach(_ context.Context, path, serial string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(err, f.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.plugged == nil {
		m.plugged = map[string]*os.File{}
	}
	if m.plugged[serial] != nil {
		return errors.Join(errors.New("the machine has a drive "+serial), f.Close())
	}
	m.plugged[serial] = f
	return nil
}

func (m *pretended) Detach(_ context.Context, serial string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.plugged[serial]
	if f == nil {
		return errors.New("the machine has no drive " + serial)
	}
	delete(m.plugged, serial)
	return f.Close()
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
	m.mu.Lock()
	defer m.mu.Unlock()
	for serial, f := range m.plugged {
		delete(m.plugged, serial)
		_ = f.Close()
	}
	return nil
}

// echo is a shell that returns its input.
func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.Close()
}
