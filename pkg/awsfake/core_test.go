package awsfake_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

func TestRate(t *testing.T) {
	clock := awsfake.NewVirtualClock(start)
	account, c := serve(t, awsfake.Options{Clock: clock})
	calls := func(n int) (refused int) {
		t.Helper()
		for range n {
			_, err := c.ListHostedZonesByName(t.Context(), &route53.ListHostedZonesByNameInput{})
			var refusal smithy.APIError
			switch {
			case err == nil:
			case errors.As(err, &refusal) && refusal.ErrorCode() == "Throttling" && refusal.ErrorMessage() == "Rate exceeded":
				refused++
			default:
				t.Fatal(err)
			}
		}
		return refused
	}
	if refused := calls(7); refused != 2 {
		t.Errorf("%d of 7 calls at once were throttled, want 2", refused)
	}
	clock.Advance(200 * time.Millisecond)
	if refused := calls(2); refused != 1 {
		t.Errorf("%d of 2 calls after 0.2 s were throttled, want 1", refused)
	}
	clock.Advance(time.Hour)
	if refused := calls(6); refused != 1 {
		t.Errorf("%d of 6 calls after an hour were throttled, want 1: tokens do not pile up", refused)
	}
	if got := account.Calls()["route53:ListHostedZonesByName"]; got != 15 {
		t.Errorf("%d calls counted, want 15", got)
	}
	if diff := cmp.Diff(map[string]int{"Throttling": 4}, account.Refused()); diff != "" {
		t.Errorf("refused calls (-want +got):\n%s", diff)
	}
}

// TestLostReply shows the trap of a retry: the first attempt has been committed.
func TestLostReply(t *testing.T) {
	var script awsfake.Script
	account := awsfake.New(awsfake.Options{Rates: unlimited, Faults: &script})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	once, retrying := client(server.URL, "K", 1), client(server.URL, "K", 3)
	zone := createZone(t, once, "k8s")

	script.Add("ChangeResourceRecordSets", awsfake.Fault{LoseReply: true})
	_, err := change(t.Context(), once, zone, address("a.k8s", "10.0.0.1"))
	var refusal smithy.APIError
	if err == nil || errors.As(err, &refusal) {
		t.Errorf("a lost reply: %v, want an error that is no answer", err)
	}
	if _, err = change(t.Context(), once, zone, remove(set("a.k8s", "A", 5, "10.0.0.1"))); err != nil {
		t.Errorf("the batch whose reply was lost has not been committed: %v", err)
	}
	script.Add("ChangeResourceRecordSets", awsfake.Fault{LoseReply: true})
	_, err = change(t.Context(), retrying, zone, address("b.k8s", "10.0.0.1"))
	wantRefusal(t, err, "InvalidChangeBatch", "[Tried to create resource record set [name='b.k8s.', type='A'] but it already exists]")

	script.Add("ChangeResourceRecordSets", awsfake.Fault{LoseReply: true})
	_, err = account.Route53().ChangeResourceRecordSets(t.Context(), zone, []awsfake.Change{
		{Action: "CREATE", Set: awsfake.RecordSet{Name: "c.k8s", Type: "A", TTL: 5, Values: []string{"10.0.0.1"}}}})
	if !errors.Is(err, awsfake.ErrReplyLost) {
		t.Errorf("in Go: %v, want ErrReplyLost", err)
	}
	if sets, _ := listAll(t, once, zone, 300); len(sets) != 4 {
		t.Errorf("the zone has %d sets, want its own two, b and c", len(sets))
	}
}

func TestFaultsBefore(t *testing.T) {
	clock := awsfake.NewVirtualClock(start)
	var script awsfake.Script
	account, c := serve(t, awsfake.Options{Clock: clock, Rates: unlimited, Faults: &script})
	zone := createZone(t, c, "k8s")
	script.Add("ChangeResourceRecordSets",
		awsfake.Fault{Refuse: awsfake.Unavailable()}, awsfake.Fault{}, awsfake.Fault{Refuse: awsfake.PriorRequestNotComplete()})
	_, err := change(t.Context(), c, zone, address("a.k8s", "10.0.0.1"))
	wantRefusal(t, err, "ServiceUnavailable", awsfake.Unavailable().Message)
	if _, err = change(t.Context(), c, zone, address("a.k8s", "10.0.0.1")); err != nil {
		t.Errorf("the call that the script lets pass: %v", err)
	}
	_, err = change(t.Context(), c, zone, address("b.k8s", "10.0.0.1"))
	wantRefusal(t, err, "PriorRequestNotComplete", "The request was rejected because Route 53 was still processing a prior request.")

	script.Add("GetHostedZone", awsfake.Fault{Delay: time.Minute}, awsfake.Fault{Delay: time.Minute})
	get := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := c.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &zone})
			done <- err
		}()
		for {
			if _, asleep := clock.Next(); asleep {
				return done
			}
			time.Sleep(time.Millisecond)
		}
	}
	done := get(t.Context())
	clock.Advance(59 * time.Second)
	select {
	case err := <-done:
		t.Errorf("a delayed call came back early: %v", err)
	default:
	}
	clock.Advance(time.Second)
	if err := <-done; err != nil {
		t.Errorf("a delayed call: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done = get(ctx)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("a call given up while delayed: %v", err)
	}
	account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Service != "route53" || c.Action != "ListHostedZonesByName" || c.Number != 2 || !c.At.Equal(clock.Now()) {
			return awsfake.Fault{}
		}
		return awsfake.Fault{Refuse: awsfake.Throttled()}
	}))
	for i, wantOK := range []bool{true, false, true} {
		if _, err := c.ListHostedZonesByName(t.Context(), &route53.ListHostedZonesByNameInput{}); (err == nil) != wantOK {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}

// TestConcurrentSwaps lets clients count together by compare-and-swap: no count may be lost.
func TestConcurrentSwaps(t *testing.T) {
	_, c := serve(t, awsfake.Options{Rates: unlimited})
	zone := createZone(t, c, "k8s")
	counter := func(n int) *types.ResourceRecordSet {
		return set("count.k8s", "TXT", 5, strconv.Quote(strconv.Itoa(n)))
	}
	if _, err := change(t.Context(), c, zone, create(counter(0))); err != nil {
		t.Fatal(err)
	}
	const workers, each = 6, 15
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for done := 0; done < each; {
				page, err := c.ListResourceRecordSets(t.Context(), &route53.ListResourceRecordSetsInput{
					HostedZoneId: &zone, StartRecordName: aws.String("count.k8s"), MaxItems: aws.Int32(1)})
				if err != nil {
					t.Error(err)
					return
				}
				text, err := strconv.Unquote(*page.ResourceRecordSets[0].ResourceRecords[0].Value)
				if err != nil {
					t.Error(err)
					return
				}
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = change(t.Context(), c, zone, remove(counter(n)), create(counter(n+1)))
				var conflict *types.InvalidChangeBatch
				switch {
				case err == nil:
					done++
				case !errors.As(err, &conflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if _, err := change(t.Context(), c, zone, remove(counter(workers*each))); err != nil {
		t.Errorf("the count is not %d: %v", workers*each, err)
	}
}

func TestUnknownService(t *testing.T) {
	account := awsfake.New(awsfake.Options{})
	w := httptest.NewRecorder()
	account.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
	if w.Code != 501 {
		t.Errorf("an unsigned call is answered with %d, want 501", w.Code)
	}
}
