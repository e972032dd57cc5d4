package etcd

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRecords(t *testing.T) {
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	same(t, Begin{Token: NewToken(), Members: peers}, `{"format":1,"token":"`)
	same(t, Begin{Token: "demo", Members: peers[:1], Restore: &Restore{"demo/1/x.db", strings.Repeat("0f", 32), 7}, Previous: []string{"a", "b"}, Off: []string{"b"}}, `"restore":{"object":"demo/1/x.db"`)
	same(t, Started{Volume: "vol-1", UUID: "u", Instance: "i-1", Attempt: NewToken()}, `{"format":1,"volume":"vol-1"`)
	same(t, Outcome{Formed: &Formed{ClusterID: 0x36286a59e213784b, Members: map[string]ID{"a": 0xf}}}, `{"format":1,"formed":{"cluster_id":"36286a59e213784b","members":{"a":"f"}}}`)
	same(t, Outcome{Abandoned: "why"}, `{"format":1,"abandoned":"why"}`)
	same(t, Made{Member: "a", UUID: "u"}, `{"format":1,"member":"a","uuid":"u"}`)
	same(t, Used{Epoch: 2, How: ByJoin}, `{"format":1,"epoch":2,"how":"joined"}`)
	same(t, Status{At: at, Instance: "i-1", Epoch: 1, MemberID: 7, Row: D1Formed, Backup: &Backup{Restore{"x", "y", 2}, at, at}}, `"row":"D1"`)
	same(t, Status{At: at, Instance: "i-1", Epoch: 1, Row: V1None, Why: "no volume", Next: "make one", Work: &Work{2, AskDefrag, "a", []string{"b"}}}, `"why":"no volume","next":"make one"`)
	same(t, Order{At: at, Verb: AskDefrag}, `"verb":"defrag"`)
	same(t, Order{At: at, Verb: AskRemove, Member: "e", ID: 7, Place: "vol-1"}, `"member":"e","id":"7","place":"vol-1"`)
	same(t, Answer{At: at, Instance: "i-1", Member: "a", Done: []string{"b"}, Error: "no", Next: "yes"}, `"instance":"i-1","member":"a"`)
	same(t, Removed{Member: "e", Epoch: 2, Order: 3}, `{"format":1,"member":"e","epoch":2,"order":3}`)
	same(t, Marker{Cluster: "demo", Member: "a", Epoch: 1, Volume: "vol-1", MemberID: 7, ClusterID: 8}, `"member_id":"7","cluster_id":"8"`)
}

func same[T Record](t *testing.T, record T, part string) {
	t.Helper()
	text := Encode(record)
	if !strings.Contains(string(text), part) || len(text) > 1024 {
		t.Errorf("%T is %s, which has no %s", record, text, part)
	}
	if got, err := Parse[T](text); err != nil || !reflect.DeepEqual(got, record) {
		t.Errorf("%s is parsed as %+v, %v", text, got, err)
	}
	lookedAt := false
	switch any(record).(type) {
	case Status, Answer:
		lookedAt = true
	}
	got, err := Parse[T]([]byte(strings.Replace(string(text), `{"format":1,`, `{"format":1,"other":true,`, 1)))
	if (err == nil) != lookedAt || lookedAt && !reflect.DeepEqual(got, record) {
		t.Errorf("%T with an unknown field is %+v, %v", record, got, err)
	}
	if _, err = Parse[T]([]byte(`{"format":2,"other":true}`)); !errors.Is(err, ErrNewer) {
		t.Errorf("%T: a newer format is %v", record, err)
	}
	for _, text := range []string{"", "null", "[]", "{}", `{"format":1}`, `{"format":0}`, `{"format":"1"}`, string(text) + "x"} {
		if got, err := Parse[T]([]byte(text)); err == nil {
			t.Errorf("%T: %q is accepted as %+v", record, text, got)
		}
	}
}

func TestWrongRecords(t *testing.T) {
	for _, text := range []string{
		`{"format":1,"token":"two words","members":[{"name":"a","url":"https://a:2380"}]}`,
		`{"format":1,"token":"t","members":[]}`,
		`{"format":1,"token":"t","members":[{"name":"a","url":"x"},{"name":"a","url":"y"}]}`,
		`{"format":1,"token":"t","members":[{"name":"a","url":"x"},{"name":"b","url":"x"}]}`,
		`{"format":1,"token":"t","members":[{"name":"../a","url":"x"}]}`,
		`{"format":1,"token":"t","members":[{"name":"a","url":"x"}],"restore":{"object":"o","sha256":"no","revision":1}}`,
	} {
		if b, err := Parse[Begin]([]byte(text)); err == nil {
			t.Errorf("%s is accepted as %+v", text, b)
		}
	}
	for _, text := range []string{`{"format":1,"at":"2026-11-22T06:00:00Z","verb":"remove"}`, `{"format":1,"at":"2026-11-22T06:00:00Z","verb":"remove","member":"e","id":"7"}`, `{"format":1,"at":"2026-11-22T06:00:00Z"}`} {
		if r, err := Parse[Order]([]byte(text)); err == nil {
			t.Errorf("%s is accepted as %+v", text, r)
		}
	}
	for _, text := range []string{`{"format":1,"formed":{"cluster_id":"1"},"abandoned":"why"}`, `{"format":1,"formed":{}}`, `{"format":1,"formed":{"cluster_id":"xyz"}}`} {
		if o, err := Parse[Outcome]([]byte(text)); err == nil {
			t.Errorf("%s is accepted as %+v", text, o)
		}
	}
}

func TestObjects(t *testing.T) {
	got := []string{BeginObject(1), StartedObject(2, "a"), OutcomeObject(2), MadeObject("vol-1"), UsedObject("vol-1"), RemovedObject("vol-1"), OrderObject(2, 3), AnswerObject(2, 3), StatusObject("a")}
	want := []string{"etcd/records/epochs/1/begin", "etcd/records/epochs/2/started-a", "etcd/records/epochs/2/outcome", "etcd/records/volumes/vol-1/made", "etcd/records/volumes/vol-1/used", "etcd/records/volumes/vol-1/removed", "etcd/records/epochs/2/order-3", "etcd/records/epochs/2/answer-3",
		"etcd/status/a"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestClusterID is about order and token; TestRealMembers compares the IDs with those of etcd.
func TestClusterID(t *testing.T) {
	if a, b := NewToken(), NewToken(); a == b || len(a) != 32 {
		t.Errorf("tokens %s and %s", a, b)
	}
	reversed := slices.Clone(peers)
	slices.Reverse(reversed)
	if ClusterID(theToken, peers) != ClusterID(theToken, reversed) || ClusterID(theToken, peers) == ClusterID("another", peers) {
		t.Error("a cluster's ID depends on the order of its members, or not on its token")
	}
}
