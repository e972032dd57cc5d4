package metadata_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	awsimds "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"go.uber.org/goleak"
	"gotest.tools/v3/golden"

	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// binary is user data as gzip is: with every byte.
var binary = func() []byte {
	b := make([]byte, 0, 512)
	for i := range 512 {
		b = append(b, byte(i))
	}
	return b
}()

// region has two instances, which ask from two loopback addresses.
type region struct {
	mu        sync.Mutex
	instances map[netip.Addr]metadata.Instance
	refused   error
}

func (r *region) Instance(addr netip.Addr) (metadata.Instance, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.instances[addr]
	return i, ok
}

func (r *region) change(addr string, change func(*metadata.Instance)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.instances[netip.MustParseAddr(addr)]
	change(&i)
	r.instances[netip.MustParseAddr(addr)] = i
}

var launched = time.Date(2026, 11, 21, 14, 0, 0, 5, time.UTC)

func (r *region) Credentials(_ context.Context, id, role string) (metadata.Credentials, error) {
	return metadata.Credentials{
		AccessKeyID: "ASIA" + id, SecretAccessKey: "secret of " + role, Token: "token",
		Updated: launched, Expires: time.Now().Add(6 * time.Hour),
	}, r.refused
}

const (
	first  = "127.0.0.1"
	second = "127.0.0.2"
)

func newRegion() *region {
	instance := func(n int) metadata.Instance {
		addr := netip.AddrFrom4([4]byte{10, 1, 0, byte(10 + n)})
		return metadata.Instance{
			ID: fmt.Sprintf("i-0123456789abcdef%d", n), Type: "m7i.large", ImageID: "ami-0123456789abcdef0", Arch: "x86_64", Launched: launched,
			Placement: metadata.Placement{Account: "123456789012", Region: "eu-central-1", Zone: "eu-central-1a"},
			Card: metadata.Card{
				Addr: addr, MAC: net.HardwareAddr{6, 0, 10, 1, 0, byte(10 + n)}, Subnet: netip.MustParsePrefix("10.1.0.0/24"),
				Hostname: fmt.Sprintf("ip-10-1-0-%d.eu-central-1.compute.internal", 10+n),
			},
			UserData: binary, Role: "masters", LifecycleState: "InService",
			Tags: map[string]string{"Role": "masters", "KubernetesCluster": "demo", "aws:autoscaling:groupName": "demo-masters", "a/b": "c"},
		}
	}
	return &region{instances: map[netip.Addr]metadata.Instance{netip.MustParseAddr(first): instance(0), netip.MustParseAddr(second): instance(1)}}
}

// serve runs the service until the test ends, and returns its URL.
func serve(t *testing.T, s *metadata.Service) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// from is a client whose connections come from the address.
func from(t *testing.T, addr string) *http.Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// do makes a request with headers as pairs.
func do(t *testing.T, c *http.Client, method, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

const (
	ttl   = "X-aws-ec2-metadata-token-ttl-seconds"
	token = "X-aws-ec2-metadata-token"
)

func TestProtocol(t *testing.T) {
	service := metadata.New(newRegion(), nil)
	url := serve(t, service)
	client := from(t, first)
	res, mine := do(t, client, http.MethodPut, url+"/latest/api/token", ttl, "60")
	if res.StatusCode != http.StatusOK || res.Header.Get(ttl) != "60" {
		t.Fatalf("token: %s, life %q", res.Status, res.Header.Get(ttl))
	}
	_, theirs := do(t, from(t, second), http.MethodPut, url+"/latest/api/token", ttl, "60")
	cases := []struct {
		name, addr, method, path string
		headers                  []string
		want                     int
	}{
		{"a token for six hours", first, "PUT", "/latest/api/token", []string{ttl, "21600"}, 200},
		{"a token for longer", first, "PUT", "/latest/api/token", []string{ttl, "21601"}, 400},
		{"a token for no time", first, "PUT", "/latest/api/token", []string{ttl, "0"}, 400},
		{"a token for a word", first, "PUT", "/latest/api/token", []string{ttl, "long"}, 400},
		{"a token without a life", first, "PUT", "/latest/api/token", nil, 400},
		{"a token by GET", first, "GET", "/latest/api/token", []string{ttl, "60"}, 405},
		{"a token through a proxy", first, "PUT", "/latest/api/token", []string{ttl, "60", "X-Forwarded-For", "10.244.0.7"}, 403},
		{"version 1", first, "GET", "/latest/meta-data/instance-id", nil, 401},
		{"a guessed token", first, "GET", "/latest/meta-data/instance-id", []string{token, "guess"}, 401},
		{"another instance's token", first, "GET", "/latest/meta-data/instance-id", []string{token, theirs}, 401},
		{"no instance", "127.0.0.3", "PUT", "/latest/api/token", []string{ttl, "60"}, 404},
		{"POST", first, "POST", "/latest/meta-data/instance-id", []string{token, mine}, 405},
		{"nothing there", first, "GET", "/latest/meta-data/public-ipv4", []string{token, mine}, 404},
		{"no such version", first, "GET", "/newest/meta-data/instance-id", []string{token, mine}, 404},
		{"another role", first, "GET", "/latest/meta-data/iam/security-credentials/minions", []string{token, mine}, 404},
		{"a dated version", first, "GET", "/2021-03-23/meta-data/instance-id", []string{token, mine}, 200},
		{"right", first, "GET", "/latest/meta-data/instance-id", []string{token, mine}, 200},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res, body := do(t, from(t, c.addr), c.method, url+c.path, c.headers...)
			if res.StatusCode != c.want {
				t.Errorf("got %s %q, want %d", res.Status, body, c.want)
			}
		})
	}
	last := service.Requests()[len(cases)+1]
	if last.Instance != "i-0123456789abcdef0" || last.Method != "GET" || last.Path != "/latest/meta-data/instance-id" || last.Status != 200 {
		t.Errorf("the last request is kept as %+v", last)
	}
}

func TestTokenEnds(t *testing.T) {
	url := serve(t, metadata.New(newRegion(), nil))
	client := from(t, first)
	_, short := do(t, client, http.MethodPut, url+"/latest/api/token", ttl, "1")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		res, _ := do(t, client, http.MethodGet, url+"/latest/meta-data/instance-id", token, short)
		if res.StatusCode == http.StatusUnauthorized {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a token for a second is good for 20")
		}
	}
}

// TestTree walks the directories as a person would, and compares everything that is there.
func TestTree(t *testing.T) {
	url := serve(t, metadata.New(newRegion(), nil))
	client := from(t, first)
	_, mine := do(t, client, http.MethodPut, url+"/latest/api/token", ttl, "60")
	var out strings.Builder
	var walk func(dir string)
	walk = func(dir string) {
		_, names := do(t, client, http.MethodGet, url+dir, token, mine)
		for _, name := range strings.Split(names, "\n") {
			if strings.HasSuffix(name, "/") {
				walk(dir + name)
				continue
			}
			res, body := do(t, client, http.MethodGet, url+dir+name, token, mine)
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s is listed and says %s", dir+name, res.Status)
			}
			if strings.Contains(body, `"Expiration"`) {
				body = body[:strings.Index(body, `"Expiration"`)]
			}
			fmt.Fprintf(&out, "%s [%s] %q\n", dir+name, res.Header.Get("Content-Type"), body)
		}
	}
	walk("/latest/")
	golden.Assert(t, out.String(), "tree.txt")
}

// TestBare has an instance of which little is known.
func TestBare(t *testing.T) {
	r := newRegion()
	r.change(first, func(i *metadata.Instance) { *i = metadata.Instance{ID: i.ID} })
	url := serve(t, metadata.New(r, nil))
	client := from(t, first)
	_, mine := do(t, client, http.MethodPut, url+"/latest/api/token", ttl, "60")
	for _, path := range []string{"user-data", "meta-data/tags/instance/", "meta-data/iam/info", "meta-data/iam/security-credentials/", "meta-data/local-ipv4", "meta-data/autoscaling/target-lifecycle-state"} {
		if res, body := do(t, client, http.MethodGet, url+"/latest/"+path, token, mine); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s %q", path, res.Status, body)
		}
	}
}

// TestOurClient has pkg/node/imds ask, through faults.
func TestOurClient(t *testing.T) {
	r := newRegion()
	service := metadata.New(r, nil)
	client, err := imds.New(imds.Options{Endpoint: serve(t, service), MinWait: time.Millisecond, MaxWait: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	const id = "i-0123456789abcdef0"
	service.SetFaults(id,
		metadata.Fault{Path: "/latest/api/token", Status: 503, Times: 2},
		metadata.Fault{Path: "/latest/user-data", Half: true, Times: 1},
		metadata.Fault{Path: "/latest/user-data", Cut: true, Times: 1},
		metadata.Fault{Path: "/latest/user-data", Status: 401, Times: 1},
		metadata.Fault{Delay: time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if got, err := client.UserData(ctx); err != nil || !bytes.Equal(got, binary) {
		t.Errorf("user data %q, %v", got, err)
	}
	if got, err := client.InstanceID(ctx); err != nil || got != id {
		t.Errorf("instance %q, %v", got, err)
	}
	var statuses []int
	for _, q := range service.Requests() {
		statuses = append(statuses, q.Status)
	}
	if want := []int{503, 503, 200, 200, 0, 401, 200, 200, 200}; !slices.Equal(statuses, want) {
		t.Errorf("statuses %v, want %v", statuses, want)
	}
	r.change(first, func(i *metadata.Instance) { i.UserData = nil })
	if _, err := client.UserData(ctx); !errors.Is(err, imds.ErrNotFound) {
		t.Errorf("no user data: %v", err)
	}
	service.SetFaults(id, metadata.Fault{Status: 403})
	if _, err := client.UserData(ctx); err == nil || !strings.Contains(err.Error(), "turned off") {
		t.Errorf("turned off: %v", err)
	}
	service.SetFaults(id)
	if _, err := client.InstanceID(ctx); err != nil {
		t.Errorf("after the faults: %v", err)
	}
}

// TestAWSClient has AWS's own library ask.
func TestAWSClient(t *testing.T) {
	r := newRegion()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := awsimds.New(awsimds.Options{Endpoint: serve(t, metadata.New(r, nil)), HTTPClient: &http.Client{Transport: transport}})
	ctx := t.Context()
	where, err := client.GetRegion(ctx, &awsimds.GetRegionInput{})
	if err != nil || where.Region != "eu-central-1" {
		t.Errorf("region %+v, %v", where, err)
	}
	document, err := client.GetInstanceIdentityDocument(ctx, &awsimds.GetInstanceIdentityDocumentInput{})
	if err != nil {
		t.Fatal(err)
	}
	if d := document.InstanceIdentityDocument; d.InstanceID != "i-0123456789abcdef0" || d.PrivateIP != "10.1.0.10" || d.AccountID != "123456789012" || !d.PendingTime.Equal(launched.Truncate(time.Second)) {
		t.Errorf("document %+v", d)
	}
	info, err := client.GetIAMInfo(ctx, &awsimds.GetIAMInfoInput{})
	if err != nil || info.InstanceProfileArn != "arn:aws:iam::123456789012:instance-profile/masters" {
		t.Errorf("profile %+v, %v", info, err)
	}
	data, err := client.GetUserData(ctx, &awsimds.GetUserDataInput{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(data.Content); err != nil || !bytes.Equal(got, binary) || data.Content.Close() != nil {
		t.Errorf("user data %q, %v", got, err)
	}
	provider := ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = client })
	if got, err := provider.Retrieve(ctx); err != nil || got.AccessKeyID != "ASIAi-0123456789abcdef0" || got.SecretAccessKey != "secret of masters" || got.SessionToken != "token" {
		t.Errorf("credentials %+v, %v", got, err)
	}
	r.refused = errors.New("the role is gone")
	if _, err := provider.Retrieve(ctx); err == nil || !strings.Contains(err.Error(), "AssumeRoleUnauthorizedAccess") || !strings.Contains(err.Error(), "the role is gone") {
		t.Errorf("refused credentials: %v", err)
	}
}

// TestBoto3 has AWS's library for Python ask, in the order of its own chain of credentials.
func TestBoto3(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("Python is not installed: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import boto3").CombinedOutput(); err != nil {
		t.Skipf("boto3 is not installed (scripts/setup --judges): %v: %s", err, out)
	}
	const script = `
import boto3, os
from botocore.utils import InstanceMetadataRegionFetcher
c = boto3.Session().get_credentials()
f = c.get_frozen_credentials()
print(c.method, f.access_key, f.secret_key, f.token, InstanceMetadataRegionFetcher(base_url=os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"]).retrieve_region())`
	cmd := exec.CommandContext(t.Context(), python, "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + serve(t, metadata.New(newRegion(), nil)), "AWS_EC2_METADATA_V1_DISABLED=true"}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	if got, want := strings.TrimSpace(string(out)), "iam-role ASIAi-0123456789abcdef0 secret of masters token eu-central-1"; got != want {
		t.Errorf("boto3 says %q, want %q", got, want)
	}
}
