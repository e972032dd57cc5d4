package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// calls stands in for the reconcile and records its calls.
type calls struct {
	mu       sync.Mutex
	triggers map[string]int
	again    time.Time
	fail     map[string]error
}

func (c *calls) Sync(_ context.Context, cluster string, triggers ...reconcile.Event) (reconcile.Report, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.triggers[cluster]; twice {
		return reconcile.Report{}, fmt.Errorf("%s was synced twice", cluster)
	}
	c.triggers[cluster] = len(triggers)
	return reconcile.Report{Cluster: cluster, CallAgainAt: c.again}, c.fail[cluster]
}

// sent stands in for SQS's client.
type sent struct {
	mu  sync.Mutex
	in  []*sqs.SendMessageInput
	err error
}

func (s *sent) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.in = append(s.in, in)
	return &sqs.SendMessageOutput{}, s.err
}

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func newTestHandler(t *testing.T) (*Handler, *calls, *sent, *bytes.Buffer) {
	t.Helper()
	s, err := parseScope("demo=demo-masters,demo-minions;prod=prod-masters")
	if err != nil {
		t.Fatal(err)
	}
	c, q, log := &calls{triggers: map[string]int{}, fail: map[string]error{}}, &sent{}, new(bytes.Buffer)
	return &Handler{scope: s, syncer: c, reminder: queue{client: q, url: "https://queue"}, now: func() time.Time { return noon },
		log: slog.New(slog.NewJSONHandler(log, nil))}, c, q, log
}

// scaling is an event of a group.
func scaling(group string) string {
	return fmt.Sprintf(`{"source":"aws.autoscaling","detail-type":"EC2 Instance Launch Successful","time":"2026-11-21T11:59:00Z","detail":{"AutoScalingGroupName":%q}}`, group)
}

const schedule = `{"source":"aws.events","detail-type":"Scheduled Event","detail":{}}`

// batch is the bodies as Lambda delivers them: ids m0, m1 …; the i-th was received tries[i] times.
func batch(t *testing.T, tries []int, bodies ...string) []byte {
	t.Helper()
	var e events.SQSEvent
	for i, b := range bodies {
		m := events.SQSMessage{MessageId: fmt.Sprintf("m%d", i), Body: b, EventSource: "aws:sqs"}
		if i < len(tries) {
			m.Attributes = map[string]string{"ApproximateReceiveCount": fmt.Sprint(tries[i])}
		}
		e.Records = append(e.Records, m)
	}
	out, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestInvokeSyncsEachClusterOnce(t *testing.T) {
	hundred := slices.Repeat([]string{scaling("demo-masters"), scaling("demo-minions")}, 500)
	for _, tt := range []struct {
		name    string
		payload []byte
		want    map[string]int // cluster: events
		warns   string
	}{
		{"an event", []byte(scaling("prod-masters")), map[string]int{"prod": 1}, ""},
		{"a schedule's event", []byte(schedule), map[string]int{"demo": 0, "prod": 0}, ""},
		{"a reminder", []byte(`{"source":"hardtack.dns","detail":{"cluster":"prod"}}`), map[string]int{"prod": 0}, ""},
		{"a call in CloudTrail", []byte(`{"source":"aws.autoscaling","detail":{"requestParameters":{"autoScalingGroupName":"demo-masters"}}}`), map[string]int{"demo": 1}, ""},
		{"a batch of a thousand", batch(t, nil, hundred...), map[string]int{"demo": 1000}, ""},
		{"a batch of two clusters and a schedule", batch(t, nil, scaling("demo-masters"), schedule, scaling("prod-masters")), map[string]int{"demo": 1, "prod": 1}, ""},
		{"a group that is not allowed", []byte(scaling("else-masters")), map[string]int{}, "not in the allow-list"},
		{"a group that is not allowed, in a batch", batch(t, nil, scaling("else-masters"), scaling("demo-masters")), map[string]int{"demo": 1}, "not in the allow-list"},
		{"a reminder of no cluster of ours", []byte(`{"source":"hardtack.dns","detail":{"cluster":"else"}}`), map[string]int{"demo": 1, "prod": 1}, "its group or cluster is unknown"},
		{"no JSON", []byte("poke"), map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"nothing", nil, map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"an empty object, as a person sends", []byte("{}"), map[string]int{"demo": 1, "prod": 1}, ""},
		{"a machine that ends", []byte(`{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","detail":{"instance-id":"i-1","state":"shutting-down"}}`), map[string]int{"demo": 1, "prod": 1}, ""},
		{"a list", []byte("[1]"), map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"a detail of another type", []byte(`{"source":"aws.autoscaling","detail":"x"}`), map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"a time that is none", []byte(`{"source":"aws.autoscaling","time":"yesterday","detail":{"AutoScalingGroupName":"demo-masters"}}`), map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"records of another kind", []byte(`{"Records":"x"}`), map[string]int{"demo": 1, "prod": 1}, "its group or cluster is unknown"},
		{"a bad body in a batch", batch(t, nil, "\x00{", scaling("prod-masters")), map[string]int{"demo": 1, "prod": 2}, "reading an event"},
		{"an empty batch", []byte(`{"Records":[]}`), map[string]int{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, _, log := newTestHandler(t)
			out, err := h.Invoke(t.Context(), tt.payload)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, c.triggers); diff != "" {
				t.Errorf("synced (-want +got):\n%s", diff)
			}
			if !bytes.Contains(out, []byte(`"batchItemFailures":[]`)) {
				t.Errorf("answered %s", out)
			}
			if warned := strings.Contains(log.String(), `"WARN"`); warned != (tt.warns != "") || !strings.Contains(log.String(), tt.warns) {
				t.Errorf("logged %s, want %q", log, tt.warns)
			}
		})
	}
}

func TestEverySampleNamesItsCluster(t *testing.T) {
	h, _, _, _ := newTestHandler(t)
	files, err := filepath.Glob("../../../lambda/events/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the samples: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		clusters, triggers, err := h.scope.parse(text)
		want, happened := []string{"demo"}, 1
		if filepath.Base(f) == "schedule.json" {
			want, happened = []string{"demo", "prod"}, 0
		} else if bytes.Contains(text, []byte(`"aws.ec2"`)) { // it names no group
			want = []string{"demo", "prod"}
		}
		if err != nil || !slices.Equal(clusters, want) || len(triggers) != happened {
			t.Errorf("%s is %d events of %v (%v), want %d of %v", f, len(triggers), clusters, err, happened, want)
		}
		if happened == 1 && !triggers[0].At.Equal(noon) {
			t.Errorf("%s happened at %v", f, triggers[0].At)
		}
	}
}

func TestInvokeFails(t *testing.T) {
	broken := errors.New("Route 53 said no")
	for _, tt := range []struct {
		name    string
		fail    string
		payload []byte
		want    string // batchItemFailures, or the error where it begins with !
	}{
		{"one message for a cluster, the one tried most", "demo", batch(t, []int{1, 3, 2, 9}, scaling("demo-masters"), scaling("demo-minions"), scaling("demo-masters"), scaling("prod-masters")), "m1"},
		{"one message for all clusters", "demo", batch(t, []int{1}, schedule), "m0"},
		{"messages without a count", "demo", batch(t, nil, scaling("prod-masters"), scaling("demo-masters"), scaling("demo-masters")), "m1"},
		{"one event", "demo", []byte(scaling("demo-masters")), "!Route 53 said no"},
		{"another cluster", "prod", batch(t, nil, scaling("demo-masters")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, _, _ := newTestHandler(t)
			c.fail[tt.fail] = broken
			out, err := h.Invoke(t.Context(), tt.payload)
			if text, wanted := strings.CutPrefix(tt.want, "!"); wanted {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Fatalf("answered %s, %v; want error %q", out, err, text)
				}
				return
			}
			var got events.SQSEventResponse
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("answered %s, %v", out, err)
			}
			var ids []string
			for _, f := range got.BatchItemFailures {
				ids = append(ids, f.ItemIdentifier)
			}
			if strings.Join(ids, " ") != tt.want {
				t.Errorf("failed %v, want %q", ids, tt.want)
			}
		})
	}
}

func TestReminders(t *testing.T) {
	for _, tt := range []struct {
		name  string
		again time.Time
		want  int32 // seconds; -1: none
	}{
		{"none waits", time.Time{}, -1},
		{"due in a minute and a bit", noon.Add(65*time.Second + time.Millisecond), 66},
		{"due already", noon.Add(-time.Minute), 0},
		{"due later than SQS can delay", noon.Add(time.Hour), 900},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, q, log := newTestHandler(t)
			c.again, q.err = tt.again, errors.New("no queue")
			if _, err := h.Invoke(t.Context(), batch(t, nil, scaling("demo-masters"), scaling("demo-minions"))); err != nil {
				t.Fatal(err)
			}
			if tt.want < 0 {
				if len(q.in) != 0 {
					t.Errorf("sent %d messages", len(q.in))
				}
				return
			}
			if len(q.in) != 1 || q.in[0].DelaySeconds != tt.want {
				t.Fatalf("sent %+v, want one message in %d s", q.in, tt.want)
			}
			clusters, triggers, err := h.scope.parse([]byte(*q.in[0].MessageBody))
			if err != nil || !slices.Equal(clusters, []string{"demo"}) || len(triggers) != 0 {
				t.Errorf("the reminder %s is read as %v %v %v", *q.in[0].MessageBody, clusters, triggers, err)
			}
			if !strings.Contains(log.String(), "the schedule will finish the hooks") {
				t.Errorf("that the message was not sent is not logged: %s", log)
			}
		})
	}
}

func TestReadSettings(t *testing.T) {
	good := map[string]string{EnvClusters: "demo=a,b;prod=c", EnvZone: "Z1", EnvRegion: "r", EnvKey: "k", EnvSecret: "s"}
	for _, tt := range []struct{ name, key, value, want string }{
		{"good", "", "", ""},
		{"no clusters", EnvClusters, "", `"" is not a cluster's name`},
		{"no groups", EnvClusters, "demo", "without a name"},
		{"not a label", EnvClusters, "De_mo=a", "not a cluster's name"},
		{"cluster twice", EnvClusters, "demo=a;demo=b", "there twice"},
		{"group of two clusters", EnvClusters, "demo=a;prod=a", "a group belongs to one cluster"},
		{"no zone", EnvZone, "k8s", "not the id of a hosted zone"},
		{"no region", EnvRegion, "", EnvRegion},
		{"no key", EnvKey, "", EnvKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Read(func(k string) string {
				if k == tt.key {
					return tt.value
				}
				return good[k]
			})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// Every name that the header promises is a number in the line: CloudWatch drops a line otherwise.
func TestMetricsAreWhole(t *testing.T) {
	var out bytes.Buffer
	m := metrics{out: &out, now: func() time.Time { return noon }, log: slog.New(slog.DiscardHandler), mu: new(sync.Mutex)}
	problems := problem.List{{Rule: record.RuleKept}, {Rule: record.RuleEmpty}, {Rule: record.RuleNotOwned}, {Rule: "untagged"}}
	m.Observe(t.Context(), reconcile.Report{Cluster: "demo", Changed: true, Problems: problems, Conflicts: 2, Calls: reconcile.Calls{ZoneReads: 3, ZoneWrites: 1}}, errors.New("x"))
	var line map[string]any
	var header struct {
		AWS emfHeader `json:"_aws"`
	}
	if err := errors.Join(json.Unmarshal(out.Bytes(), &line), json.Unmarshal(out.Bytes(), &header)); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"Changes": 1, "Conflicts": 2, "Throttled": 0, "ZoneRequests": 4, "Unannounced": 0, "Failures": 1,
		"Reconciles": 0, "Kept": 2, "Problems": 4, "NotOwned": 1}
	named := header.AWS.CloudWatchMetrics[0].Metrics
	if len(named) != len(want) || line["Cluster"] != "demo" || header.AWS.Timestamp != noon.UnixMilli() {
		t.Errorf("line %s", out.String())
	}
	for _, n := range named {
		if line[n.Name] != want[n.Name] {
			t.Errorf("%s is %v, want %v", n.Name, line[n.Name], want[n.Name])
		}
	}
}
