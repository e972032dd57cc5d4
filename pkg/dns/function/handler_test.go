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

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
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
		{"another's event about a group of ours", []byte(`{"source":"else","detail":{"AutoScalingGroupName":"demo-masters"}}`),
			map[string]int{"demo": 1, "prod": 1}, "its group or cluster is unknown"},
		{"another's event about a cluster of ours", []byte(`{"source":"else","detail":{"cluster":"demo"}}`),
			map[string]int{"demo": 1, "prod": 1}, "its group or cluster is unknown"},
		{"an event of AutoScaling without a group", []byte(`{"source":"aws.autoscaling","detail":{}}`),
			map[string]int{"demo": 1, "prod": 1}, "its group or cluster is unknown"},
		{"a group, and beside it what cannot be read",
			[]byte(`{"source":"aws.autoscaling","detail":{"AutoScalingGroupName":"demo-masters","cluster":5}}`),
			map[string]int{"demo": 1, "prod": 1}, "reading an event"},
		{"an event with records inside", []byte(`{"source":"aws.autoscaling","detail":{"AutoScalingGroupName":"demo-masters","Records":[]}}`),
			map[string]int{"demo": 1}, ""},
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
		{"one message for all clusters, of which each fails", "demo prod", batch(t, []int{1}, schedule), "m0"},
		{"a message for each cluster", "demo prod", batch(t, nil, scaling("demo-masters"), scaling("prod-masters")), "m0 m1"},
		{"messages without a count", "demo", batch(t, nil, scaling("prod-masters"), scaling("demo-masters"), scaling("demo-masters")), "m1"},
		{"one event", "demo", []byte(scaling("demo-masters")), "!Route 53 said no"},
		{"another cluster", "prod", batch(t, nil, scaling("demo-masters")), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, c, _, _ := newTestHandler(t)
			for cluster := range strings.FieldsSeq(tt.fail) {
				c.fail[cluster] = broken
			}
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
			if len(q.in) != 1 || q.in[0].DelaySeconds != tt.want || *q.in[0].QueueUrl != "https://queue" {
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

// Without a queue nothing is sent, and the schedule does it.
func TestNoReminders(t *testing.T) {
	h, c, _, log := newTestHandler(t)
	h.reminder, c.again = nil, noon.Add(time.Minute)
	if _, err := h.Invoke(t.Context(), []byte(scaling("demo-masters"))); err != nil || strings.Contains(log.String(), "WARN") {
		t.Errorf("%v, %s", err, log)
	}
}

// A person who invokes the function sees what it did. Lambda reads of a batch what failed, and nothing else.
func TestAnswerHasReports(t *testing.T) {
	for _, tt := range []struct {
		name    string
		payload []byte
		want    []string
	}{
		{"one event", []byte(scaling("demo-masters")), []string{"demo"}},
		{"an empty object", []byte("{}"), []string{"demo", "prod"}},
		{"a batch", batch(t, nil, schedule), nil},
	} {
		h, _, _, _ := newTestHandler(t)
		out, err := h.Invoke(t.Context(), tt.payload)
		var got struct{ Reports []reconcile.Report }
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%s: answered %s, %v", tt.name, out, err)
		}
		var clusters []string
		for _, r := range got.Reports {
			clusters = append(clusters, r.Cluster)
		}
		if !slices.Equal(clusters, tt.want) {
			t.Errorf("%s: answered %s, want reports of %v", tt.name, out, tt.want)
		}
	}
}

// An event that happened has its time, by which the function measures how late the records were.
func TestTimesOfEvents(t *testing.T) {
	h, _, _, _ := newTestHandler(t)
	for _, tt := range []struct {
		name, body string
		want       []reconcile.Event
	}{
		{"a group's", scaling("demo-masters"), []reconcile.Event{{At: noon.Add(-time.Minute)}}},
		{"a machine's", `{"source":"aws.ec2","time":"2026-11-21T11:58:00Z"}`, []reconcile.Event{{At: noon.Add(-2 * time.Minute)}}},
		{"one of an unknown source", `{"source":"else","time":"2026-11-21T11:57:00Z"}`, []reconcile.Event{{At: noon.Add(-3 * time.Minute)}}},
		{"one without a time", `{"source":"aws.ec2"}`, []reconcile.Event{{}}},
		{"one that cannot be read", "poke", []reconcile.Event{{}}},
		{"a person's", " {}\n", []reconcile.Event{{}}},
		{"a schedule's", `{"source":"aws.events","time":"2026-11-21T11:57:00Z"}`, nil},
		{"a reminder's", `{"source":"hardtack.dns","time":"2026-11-21T11:57:00Z","detail":{"cluster":"demo"}}`, nil},
	} {
		_, got, _ := h.scope.parse([]byte(tt.body))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}
