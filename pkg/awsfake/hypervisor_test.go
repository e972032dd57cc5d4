package awsfake_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
)

// host is a hypervisor that records its calls, and has few addresses.
type host struct {
	mu   sync.Mutex
	told []string
	free []netip.Addr
	ids  []string
}

func (h *host) Place(awsfake.Machine) (awsfake.Addresses, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.free) == 0 {
		return awsfake.Addresses{}, errors.New("no address is left")
	}
	a := h.free[0]
	h.free = h.free[1:]
	return awsfake.Addresses{Private: a}, nil
}

func (h *host) MachineChanged(m awsfake.Machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.ids, m.ID) {
		h.ids = append(h.ids, m.ID)
	}
	h.told = append(h.told, fmt.Sprint(slices.Index(h.ids, m.ID), " ", m.State))
}

func (h *host) VolumeChanged(v awsfake.Volume) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = append(h.told, fmt.Sprint("volume ", slices.Index(h.ids, v.Attachment.Instance), " ", v.State, " ", v.Attachment.State))
}

// heard returns the calls since the last heard.
func (h *host) heard() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := strings.Join(h.told, ", ")
	h.told = nil
	return told
}

func addresses(n int) (list []netip.Addr) {
	for i := range n {
		list = append(list, netip.AddrFrom4([4]byte{192, 168, 127, byte(10 + i)}))
	}
	return list
}

// region is a group of two under a hypervisor, in virtual time.
func region(t *testing.T, free int) (*awsfake.Account, *host, func(time.Duration), func(states ...string)) {
	t.Helper()
	h := &host{free: addresses(free)}
	clock := awsfake.NewVirtualClock(start)
	a := awsfake.New(awsfake.Options{Clock: clock, EC2: awsfake.EC2Options{Hypervisor: h}, AutoScaling: awsfake.AutoScalingOptions{HealthCheck: time.Minute}})
	err := a.AutoScaling().Create(awsfake.Group{Name: "g", Max: 4, Desired: 2, Role: "minions", UserData: "#cloud-config\n", Tags: map[string]string{"Role": "minions"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.AutoScaling().PutHook("g", awsfake.Hook{Name: "up", Transition: "autoscaling:EC2_INSTANCE_LAUNCHING"}); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	pass := func(d time.Duration) {
		clock.Advance(d)
		a.Tick()
	}
	want := func(states ...string) {
		t.Helper()
		var got []string
		for _, i := range a.AutoScaling().Instances("g") {
			got = append(got, i.State)
		}
		if diff := cmp.Diff(states, got); diff != "" {
			t.Errorf("the group (-want +got):\n%s", diff)
		}
	}
	return a, h, pass, want
}

func wantHeard(t *testing.T, h *host, want string) {
	t.Helper()
	if got := h.heard(); got != want {
		t.Errorf("the hypervisor was told %q, want %q", got, want)
	}
}

func TestHypervisorLife(t *testing.T) {
	a, h, pass, want := region(t, 9)
	wantHeard(t, h, "0 pending, 1 pending")
	want("Pending", "Pending")
	m, _ := a.EC2().Machine(h.ids[0])
	if m.Private.String() != "192.168.127.10" || m.Role != "minions" || m.UserData != "#cloud-config\n" || m.Tags["Role"] != "minions" {
		t.Errorf("the machine to start is %+v", m)
	}
	pass(time.Hour) // nothing hurries a boot
	want("Pending", "Pending")
	if !a.EC2().Started(h.ids[0]) || !a.EC2().Started(h.ids[1]) || a.EC2().Started(h.ids[0]) {
		t.Error("machines start once")
	}
	a.Tick()
	wantHeard(t, h, "0 running, 1 running")
	want("Pending:Wait", "Pending:Wait")
	for _, id := range h.ids {
		if err := a.AutoScaling().Complete("g", "up", id, awsfake.Continue); err != nil {
			t.Fatal(err)
		}
	}
	want("InService", "InService")
	v := a.EC2().CreateVolume(m.Zone, 8, nil)
	if _, err := a.EC2().AttachVolume(v.ID, m.ID, "/dev/sdf"); err != nil {
		t.Fatal(err)
	}
	if a.EC2().Attached(v.ID, h.ids[1]) || !a.EC2().Attached(v.ID, m.ID) || a.EC2().Attached(v.ID, m.ID) {
		t.Error("volumes are attached once, to the machine that was asked for")
	}
	if a.EC2().Detached(v.ID, m.ID) {
		t.Error("a volume is given back that nobody wants")
	}
	a.Tick()
	wantHeard(t, h, "volume -1 creating , volume -1 available , volume 0 in-use attaching, volume 0 in-use attached")
	if err := a.AutoScaling().SetDesired("g", 1); err != nil {
		t.Fatal(err)
	}
	a.Tick()
	wantHeard(t, h, "0 shutting-down")
	if !a.EC2().Ended(m.ID) || a.EC2().Ended(m.ID) || a.EC2().Ended("i-none") {
		t.Error("machines end once")
	}
	a.Tick()
	wantHeard(t, h, "volume -1 available , 0 terminated")
	want("InService")
}

// TestHypervisorLosesMachines checks that a group replaces machines that die.
func TestHypervisorLosesMachines(t *testing.T) {
	a, h, pass, want := region(t, 9)
	for _, id := range h.ids {
		a.EC2().Started(id)
		if err := a.AutoScaling().Complete("g", "up", id, awsfake.Continue); err != nil {
			t.Fatal(err)
		}
	}
	a.Tick()
	h.heard()
	if !a.EC2().Ended(h.ids[0]) {
		t.Fatal("there is no such machine")
	}
	want("InService", "InService")
	pass(59 * time.Second)
	want("InService", "InService")
	pass(time.Second)
	want("InService", "Pending")
	wantHeard(t, h, "0 terminated, 2 pending")
}

// A machine that cannot be started is a failed launch, and so is one that has no place.
func TestHypervisorCannotStart(t *testing.T) {
	a, h, pass, want := region(t, 3)
	a.EC2().Ended(h.ids[0])
	a.Tick()
	want("Pending")
	pass(time.Minute)
	want("Pending", "Pending")
	a.EC2().Ended(h.ids[1])
	pass(time.Minute)
	want("Pending")
	var failed []string
	for _, e := range a.Events().Sent() {
		failed = append(failed, e.DetailType)
	}
	if diff := cmp.Diff([]string{awsfake.EventLaunchFailed, awsfake.EventLaunchFailed, awsfake.EventLaunchFailed}, failed); diff != "" {
		t.Errorf("two that died and one without an address (-want +got):\n%s", diff)
	}
	h.mu.Lock()
	h.free = addresses(1)
	h.mu.Unlock()
	pass(time.Minute)
	want("Pending", "Pending")
}

// TestHypervisorOnTheWire is the same seen by programs: RunInstances, the instance profile.
func TestHypervisorOnTheWire(t *testing.T) {
	a, h, _, _ := region(t, 3)
	server := httptest.NewServer(a.Handler())
	t.Cleanup(server.Close)
	c := ec2.New(ec2.Options{Region: "us-west-2", BaseEndpoint: &server.URL, RetryMaxAttempts: 1, HTTPClient: awshttp.Client(nil), Credentials: credentials.NewStaticCredentialsProvider("K", "secret", "")})
	run := func() error {
		_, err := c.RunInstances(t.Context(), &ec2.RunInstancesInput{ImageId: aws.String("ami-1"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1)})
		return err
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, run(), "InsufficientInstanceCapacity", "no address is left")
	a.EC2().Started(h.ids[0])
	a.EC2().Started(h.ids[1])
	out, err := c.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{h.ids[0]}})
	if err != nil {
		t.Fatal(err)
	}
	if got := *out.Reservations[0].Instances[0].IamInstanceProfile.Arn; got != "arn:aws:iam::123456789012:instance-profile/minions" {
		t.Errorf("the profile is %s", got)
	}
}

// booter is a hypervisor that starts and ends machines as fast as it can, in real time.
type booter struct {
	host
	account *awsfake.Account
}

func (b *booter) MachineChanged(m awsfake.Machine) {
	switch m.State {
	case awsfake.MachinePending:
		b.account.EC2().Started(m.ID)
	case awsfake.MachineShuttingDown:
		b.account.EC2().Ended(m.ID)
	}
}

// TestHypervisorInRealTime has Run keep a group's size on the machine's own clock.
func TestHypervisorInRealTime(t *testing.T) {
	b := &booter{host: host{free: addresses(100)}}
	a := awsfake.New(awsfake.Options{EC2: awsfake.EC2Options{Hypervisor: b}})
	b.account = a
	done := make(chan error, 1)
	go func() { done <- a.Run(t.Context()) }()
	if err := a.AutoScaling().Create(awsfake.Group{Name: "g", Max: 5, Desired: 5}); err != nil {
		t.Fatal(err)
	}
	serving := func() (ids []string) {
		for len(ids) != 5 { // the test's own time limit ends this
			ids = nil
			for _, i := range a.AutoScaling().Instances("g") {
				if i.State == awsfake.StateInService {
					ids = append(ids, i.ID)
				}
			}
			time.Sleep(time.Millisecond)
		}
		return ids
	}
	for range 10 {
		before := serving()
		a.EC2().Ended(before[0])
		if after := serving(); slices.Contains(after, before[0]) {
			t.Errorf("%v still has the machine that died of %v", after, before)
		}
	}
}
