package operate_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awshttp"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/clock"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

const zone = "us-west-2a"

// world is an account with a cluster of three members, each with a machine that runs it on its volume.
type world struct {
	t    *testing.T
	zone string // asked for; "" is the machine's
	*awsfake.Account
	*operate.Cluster
	store    store.Store
	place    *place
	now      time.Time
	begin    etcd.Begin
	machines map[string]string
	volumes  map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, Account: awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm:PutParameter": 0}}), now: time.Now(), machines: map[string]string{}, volumes: map[string]string{}}
	server := httptest.NewServer(w.Handler())
	t.Cleanup(server.Close)
	conf := aws.Config{Region: "us-west-2", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDOPERATOR", "secret", ""), HTTPClient: awshttp.Client(nil)}
	w.store = store.NewSSM("/hardtack/demo", func(context.Context) (aws.Config, error) { return conf, nil })
	w.Cluster = &operate.Cluster{Name: "demo", Members: []string{"a", "b", "c"}, Storage: machine.StorageVolume, Records: w.store, Cloud: cloud.New(conf, "demo"), Clock: clock.System{}}
	w.begin = etcd.Begin{Token: "token"}
	outcome := etcd.Formed{Members: map[string]etcd.ID{}}
	for _, m := range w.Members {
		peer := etcd.Peer{Name: m, URL: "https://etcd-" + m + ".demo.k8s:2380"}
		w.begin.Members = append(w.begin.Members, peer)
		outcome.Members[m] = etcd.MemberID(w.begin.Token, peer.URL)
	}
	w.place = &place{content: map[string][]byte{}}
	w.Backups, w.Peers = w.place, w.begin.Members
	outcome.ClusterID = etcd.ClusterID(w.begin.Token, w.begin.Members)
	w.put(t, etcd.BeginObject(1), etcd.Encode(w.begin))
	w.put(t, etcd.OutcomeObject(1), etcd.Encode(etcd.Outcome{Formed: &outcome}))
	for _, m := range w.Members {
		w.machines[m], w.volumes[m] = w.launch(t, m), w.volume(t, m)
		if _, err := w.EC2().AttachVolume(w.volumes[m], w.machines[m], "/dev/sdf"); err != nil {
			t.Fatal(err)
		}
		w.put(t, etcd.UsedObject(w.volumes[m]), etcd.Encode(etcd.Used{Epoch: 1, How: etcd.ByStart}))
		w.says(t, m, nil)
	}
	return w
}

func tags(member string) map[string]string {
	return map[string]string{role.TagCluster: "demo", role.TagEtcdMember: member}
}

func (w *world) launch(t *testing.T, member string) string {
	t.Helper()
	m, err := w.EC2().Run(awsfake.Machine{Zone: zone, Tags: tags(member)})
	if err != nil {
		t.Fatal(err)
	}
	return m.ID
}

func (w *world) volume(t *testing.T, member string) string {
	t.Helper()
	return w.EC2().CreateVolume(zone, 20, tags(member)).ID
}

func (w *world) put(t *testing.T, object string, content []byte) {
	t.Helper()
	if err := w.store.Put(t.Context(), object, content); err != nil {
		t.Fatal(err)
	}
}

// says writes a member's report, which a change may make worse.
func (w *world) says(t *testing.T, member string, change func(*etcd.Status)) {
	t.Helper()
	id := func(m string) etcd.ID {
		return etcd.MemberID(w.begin.Token, "https://etcd-"+m+".demo.k8s:2380")
	}
	s := etcd.Status{At: w.now.Add(-20 * time.Second), Instance: w.machines[member], Volume: w.volumes[member], Epoch: 1, MemberID: id(member), ClusterID: etcd.ClusterID(w.begin.Token, w.begin.Members),
		Row: etcd.SRuns, Leader: id("a"), Store: etcd.Content{Version: "3.6.14", RaftIndex: 20000, Revision: 19000, Size: 12 << 20, InUse: 8 << 20},
		Backup:   &etcd.Backup{Restore: etcd.Restore{Object: "1/newest.db", SHA256: strings.Repeat("0", 64), Revision: 18900}, At: w.now.Add(-10 * time.Minute), Verified: w.now.Add(-time.Hour)},
		Verified: &etcd.Backup{Restore: etcd.Restore{Object: "1/drilled.db", SHA256: strings.Repeat("1", 64), Revision: 10000}, At: w.now.Add(-23*time.Hour - time.Minute), Verified: w.now.Add(-23 * time.Hour)}}
	if change != nil {
		change(&s)
	}
	w.put(t, etcd.StatusObject(member), etcd.Encode(s))
}

func (w *world) status(t *testing.T) *operate.Report {
	t.Helper()
	r, err := w.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// findings are a report's as lines.
func findings(r *operate.Report) string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Member+": "+f.What+" -> "+f.Next)
	}
	return strings.Join(lines, "\n")
}

// backups changes the backup that every member reports.
func (w *world) backups(t *testing.T, change func(*etcd.Backup)) {
	t.Helper()
	for _, m := range w.Members {
		w.says(t, m, func(s *etcd.Status) { change(s.Backup) })
	}
}

func matches(text, pattern string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// told is a cloud whose volumes are other than they are.
type told struct {
	operate.Cloud
	change func(*operate.Volume)
}

func (c told) Volumes(ctx context.Context) ([]operate.Volume, error) {
	list, err := c.Cloud.Volumes(ctx)
	for i := range list {
		c.change(&list[i])
	}
	return list, err
}

// silent is a cloud that does not answer.
type silent struct{ operate.Cloud }

func (silent) Machines(context.Context) ([]operate.Machine, error) {
	return nil, errors.New("EC2 is silent")
}

// leaping is a clock that does not wait.
type leaping struct{ now time.Time }

func (c *leaping) Now() time.Time { return c.now }

func (c *leaping) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	return ctx.Err()
}

// blind is a cloud that shows no volumes when it is first asked.
type blind struct {
	operate.Cloud
	times int // more than the first
}

func (b *blind) Volumes(ctx context.Context) ([]operate.Volume, error) {
	if b.times--; b.times < -1 {
		return b.Cloud.Volumes(ctx)
	}
	return nil, nil
}
