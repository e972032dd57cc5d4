package main

import (
	"context"
	"flag"
	"log/slog"
	mrand "math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/fleet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/certs"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/config"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/wait"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// AWS's default quotas of an account in a region, for each API that machines call. AutoScaling publishes none.
var quotas = map[string]float64{
	// GetParameter, GetParameters and GetParametersByPath together, at the default throughput:
	// https://docs.aws.amazon.com/general/latest/gr/ssm.html
	"ssm":              40,
	"ssm:PutParameter": 3,
	// Non-mutating actions refill with 20 tokens a second, into a bucket of 100 of which this leaves out 80:
	// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
	"ec2:DescribeInstances": 20,
	// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
	"sts": 600,
}

// The times of a storm that are not the agent's to decide.
const (
	stormBoot    = 20 * time.Second // from a machine's launch to its agent's first call
	stormLatency = 10 * time.Millisecond
	stormAPI     = 15 * time.Second // from a master's certificates to its API server's first answer
	stormRecord  = 10 * time.Second // from then to its address in DNS: the launch hook, the function, the TTL
	stormJoined  = 10 * time.Second // from a node's certificate to its being Ready
	// stormHook is how long a launch hook waits for a machine; who has not what it needs by then is given up.
	stormHook = 15 * time.Minute
)

// stormed is a cluster in an account, all of it in memory but the machines' few files.
type stormed struct {
	account *awsfake.Account
	wire    *wire
	root    string
	info    machine.ClusterInfo
	api     *apiServers
	log     *slog.Logger

	mu       sync.Mutex
	minted   []time.Duration // by master
	served   []time.Duration // by minion
	began    time.Time
	announce []netip.Addr
}

// stormOptions say how large a storm is.
type stormOptions struct {
	masters, minions int
	// within is the time in which the machines are launched.
	within time.Duration
	// running: the masters are there before the minions come.
	running bool
}

// stormFigures is what one storm came to.
type stormFigures struct {
	Calls, Refused map[string]int
	// Masters is when the last master had its certificates, Minions when the last minion had its own; from the first launch.
	Masters, Minions time.Duration
	GivenUp          int
}

// newStormed makes the account, the store and the groups, without machines.
func newStormed(t *testing.T, o stormOptions) *stormed {
	t.Helper()
	account := awsfake.New(awsfake.Options{Rates: quotas})
	s := &stormed{account: account, info: machinetest.Info("demo"), log: slog.New(slog.DiscardHandler),
		served: make([]time.Duration, o.minions), minted: make([]time.Duration, o.masters)}
	s.wire = &wire{handler: account.Handler()}
	s.wire.take()
	s.root = t.TempDir()
	operator := account.AddUser("operator", awsfake.Administrator())
	location := store.Location{Kind: store.KindSSM, Root: "/hardtack/demo"}
	direct := store.NewSSM(location.Root, s.load(operator, 20))
	if _, err := authority.Create(t.Context(), direct, s.info, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, group := range []struct {
		name  string
		roles role.Set
		size  int
	}{{"demo-masters", role.NewSet(role.Masters, role.Etcd), o.masters}, {"demo-minions", role.NewSet(role.Minions), o.minions}} {
		document, err := store.Policy(location, pki.AccessOfAll(group.roles), "")
		if err != nil {
			t.Fatal(err)
		}
		policy, err := awsfake.ParsePolicy(document)
		if err != nil {
			t.Fatal(err)
		}
		read := awsfake.Policy{{Actions: []string{"ec2:DescribeInstances", "autoscaling:DescribeAutoScalingGroups"}, Resources: []string{"*"}}}
		account.AddRole(group.name, policy, read)
		if err := account.AutoScaling().Create(awsfake.Group{Name: group.name, Max: group.size, Desired: group.size, Zones: []string{"us-west-2a"}, Role: group.name,
			Tags: map[string]string{role.TagCluster: "demo", role.TagRole: group.roles.String(), role.TagInstanceRole: group.name}}); err != nil {
			t.Fatal(err)
		}
	}
	ca, err := direct.Get(t.Context(), pki.KubernetesCA+pki.Crt)
	if err != nil {
		t.Fatal(err)
	}
	key, err := direct.Get(t.Context(), pki.KubernetesCA+pki.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.api = &apiServers{storm: s, nodes: map[string]controller.Node{}, requests: map[string]controller.Request{}, signed: map[string][]byte{}, objects: map[string]bool{},
		came: map[chan struct{}]bool{}}
	if s.api.ca, err = pki.ParseAuthority(ca, key); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Second) // the buckets fill
	s.wire.take()
	s.began = time.Now()
	return s
}

// load is the configuration of one machine.
func (s *stormed) load(c awsfake.Credentials, attempts int) store.Load {
	return func(context.Context) (aws.Config, error) {
		conf := aws.Config{Region: "us-west-2", BaseEndpoint: aws.String("http://aws.test"), RetryMaxAttempts: attempts,
			HTTPClient: &http.Client{Transport: s.wire}, Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.Secret, c.Token)}
		if attempts == 2 {
			conf.Retryer = awsconfig.Spread(attempts)
		}
		return conf, nil
	}
}

// boot gives a machine its directory, its configuration and its credentials.
func (s *stormed) boot(id, group string, roles role.Set) (string, config.Effective, awsfake.Credentials, error) {
	root := filepath.Join(s.root, id)
	c, err := s.account.Issue(group, id, 24*time.Hour)
	effective := config.Effective{Config: machine.Config{Cluster: "demo", API: machine.API{Port: 443},
		Network: machine.Network{ServiceCIDR: "10.96.0.0/16", PodCIDR: "10.244.0.0/14", DNSAddress: machine.ImageDNSAddress, DNSDomain: machine.ImageDNSDomain}}, Roles: roles}
	if err == nil {
		err = os.MkdirAll(root, 0o755)
	}
	return root, effective, c, err
}

// master is the life of one master: certificates, API server, controller.
func (s *stormed) master(ctx context.Context, n int, m awsfake.Instance) error {
	at := s.address(m.ID)
	for {
		err := s.certificates(ctx, m)
		if err == nil {
			break
		}
		// As hardtack-certs-masters.service, which systemd starts again.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Second):
		}
	}
	s.mu.Lock()
	s.minted[n] = time.Since(s.began)
	s.mu.Unlock()
	time.Sleep(stormAPI)
	_, effective, c, err := s.boot(m.ID, "demo-masters", role.NewSet(role.Masters, role.Etcd))
	if err != nil {
		return err
	}
	load := s.load(c, 0)
	conf, _ := load(ctx)
	s.api.mu.Lock()
	s.api.up = true
	s.api.masters = append(s.api.masters, at)
	s.api.mu.Unlock()
	own := &controller.Controller{Nodes: s.api, Requests: s.api, Objects: s.api, Tokens: s.api, Secrets: store.NewSSM("/hardtack/demo", load), Identities: s, Now: time.Now, Log: s.log,
		Instances: &fleet.Instances{Machines: ec2.NewFromConfig(conf), Groups: autoscaling.NewFromConfig(conf), Cluster: effective.Cluster},
		Self:      func() (controller.Self, error) { return controller.Self{Addresses: []netip.Addr{at}}, nil }}
	return own.Run(ctx, func() {
		time.AfterFunc(stormRecord, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.announce = append(s.announce, at)
		})
	})
}

func (s *stormed) address(id string) netip.Addr {
	m, _ := s.account.EC2().Machine(id)
	return m.Private
}

// certificates is hardtack-agent certs of both roles.
func (s *stormed) certificates(ctx context.Context, m awsfake.Instance) error {
	for _, r := range []role.Role{role.Etcd, role.Masters} {
		root, effective, c, err := s.boot(m.ID, "demo-masters", role.NewSet(role.Masters, role.Etcd))
		if err != nil {
			return err
		}
		secrets := store.NewSSM("/hardtack/demo", s.load(c, 2))
		learned, err := certs.Learn(ctx, certs.LearnOptions{Root: root, Roles: role.NewSet(r), Config: effective, Store: secrets, Patience: certsPatience})
		if err != nil {
			return err
		}
		_, err = certs.Mint(ctx, certs.MintOptions{Root: root, Roles: role.NewSet(r), Config: learned, Store: secrets, Now: time.Now, Patience: certsPatience,
			Host: func() (certs.Host, error) {
				return certs.Host{Name: m.ID, Addresses: []netip.Addr{s.address(m.ID)}}, nil
			}})
		if err != nil {
			return err
		}
	}
	return nil
}

// minion is the way of one minion to its certificate: hardtack-agent bootstrap.
func (s *stormed) minion(ctx context.Context, n int, m awsfake.Instance) error {
	root, effective, c, err := s.boot(m.ID, "demo-minions", role.NewSet(role.Minions))
	if err != nil {
		return err
	}
	load := s.load(c, 2)
	secrets := certs.Ahead(store.NewSSM("/hardtack/demo", load), effective)
	target, err := url.Parse(effective.APIServer(effective.Roles) + "/readyz")
	if err != nil {
		return err
	}
	announced := func(ctx context.Context) error {
		return wait.Run(ctx, wait.Options{Targets: []*url.URL{target}, Resolver: s, Prober: wait.Announced{}})
	}
	learned, err := certs.Learn(ctx, certs.LearnOptions{Root: root, Roles: role.NewSet(role.Minions), Config: effective, Store: secrets, Masters: announced, Patience: certs.Forever})
	if err != nil {
		return err
	}
	at := s.address(m.ID)
	name := m.ID
	_, err = certs.Bootstrap(ctx, certs.BootstrapOptions{Root: root, Config: learned, Store: secrets, Now: time.Now, Patience: certs.Forever,
		Node: func() (string, error) { return name, nil },
		Reach: func(ctx context.Context) error {
			return wait.Run(ctx, wait.Options{Targets: []*url.URL{target}, Resolver: s, Prober: s.api})
		},
		Join: func(_ string, _ []byte, token string) (certs.Joiner, error) { return stormJoiner{s.api, token}, nil },
		Prove: func(ctx context.Context, request []byte) (string, error) {
			conf, err := load(ctx)
			if err != nil {
				return "", err
			}
			return identity.Prove(ctx, conf, "demo", request, time.Now())
		}})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.served[n] = time.Since(s.began)
	s.mu.Unlock()
	s.api.join(name, m.ID, at)
	return nil
}

// run makes the storm, and measures it until everybody is served or the launch hooks have ended.
func (s *stormed) run(t *testing.T, o stormOptions) stormFigures {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all, minions sync.WaitGroup
	launch := func(wg *sync.WaitGroup, live func() error) {
		wg.Go(func() {
			time.Sleep(stormBoot + time.Duration(mrand.Int64N(int64(o.within))))
			if err := live(); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	for n, m := range s.account.AutoScaling().Instances("demo-masters") {
		launch(&all, func() error { return s.master(ctx, n, m) })
	}
	if o.running {
		time.Sleep(3 * time.Minute)
		s.wire.take()
		s.began = time.Now()
	}
	life, end := context.WithTimeout(ctx, stormHook)
	for n, m := range s.account.AutoScaling().Instances("demo-minions") {
		launch(&minions, func() error {
			err := s.minion(life, n, m)
			if life.Err() != nil {
				return nil // given up
			}
			return err
		})
	}
	minions.Wait()
	end()
	cancel()
	all.Wait()
	return s.figures()
}

func (s *stormed) figures() stormFigures {
	var f stormFigures
	f.Calls, f.Refused = s.wire.take()
	f.Masters = slices.Max(s.minted)
	for _, at := range s.minted {
		if at == 0 {
			f.Masters = -1
		}
	}
	for _, at := range s.served {
		f.Minions = max(f.Minions, at)
		if at == 0 {
			f.GivenUp++
		}
	}
	return f
}

var stormFlag = flag.Bool("storm", false, "make the large storms too, which take minutes")

// TestStorm launches machines at once in an account with AWS's default quotas, by the agent's own code, in virtual time. Nobody is
// given up, and the last one is served within twice the time that the quota of the store takes for one read of each.
func TestStorm(t *testing.T) {
	const at = 5 * time.Second
	for name, o := range map[string]stormOptions{
		"200 from nothing": {masters: 3, minions: 200, within: at}, "600 from nothing": {masters: 3, minions: 600, within: at},
		"1000 from nothing": {masters: 3, minions: 1000, within: at},
		"1000 join":         {masters: 3, minions: 1000, within: at, running: true}, "5000 join": {masters: 3, minions: 5000, within: at, running: true},
	} {
		t.Run(name, func(t *testing.T) {
			if o.minions > 200 && !*stormFlag {
				t.Skip("a large storm takes minutes: -storm makes it")
			}
			synctest.Test(t, func(t *testing.T) {
				s := newStormed(t, o)
				s.run(t, o).judge(t, o)
			})
		})
	}
}

// judge compares the figures with the quota.
func (f stormFigures) judge(t *testing.T, o stormOptions) {
	t.Helper()
	t.Logf("%+v", f)
	floor := time.Duration(float64(o.minions) / quotas["ssm"] * float64(time.Second))
	ready := stormBoot + o.within
	if !o.running {
		ready = f.Masters + stormAPI + stormRecord
		if f.Masters < 0 || f.Masters > stormBoot+o.within+10*time.Second {
			t.Errorf("the masters have their certificates after %v", f.Masters)
		}
	}
	// Beside the quota there are the pauses of the wait for the API server and of the controllers.
	if limit := ready + 2*floor + 15*time.Second; f.GivenUp > 0 || f.Minions > limit {
		t.Errorf("%d are given up, and the last has its certificate after %v; the limit is %v", f.GivenUp, f.Minions, limit)
	}
	if served := f.Calls["GetParameters"] - f.Refused["GetParameters"]; served > o.minions+20*o.masters {
		t.Errorf("%d reads of the store were served for %d machines", served, o.minions)
	}
}
