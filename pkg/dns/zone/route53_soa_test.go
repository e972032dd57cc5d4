package zone_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/smithy-go"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/reconcile"
)

// A resolver keeps a "no such name" for the lower of TTL and minimum; both are set to what they should be.
func TestRoute53LowersTheMinimum(t *testing.T) {
	const soa = "ns.example. hostmaster.example. 1 7200 900 1209600 "
	for _, tc := range []struct {
		ttl, minimum int64
		kept         time.Duration
		changed      bool
	}{
		{ttl: 5, minimum: 5, kept: 5 * time.Second},
		{ttl: 900, minimum: 86400, kept: 15 * time.Minute, changed: true},
		{ttl: 900, minimum: 5, kept: 5 * time.Second, changed: true},
		{ttl: 5, minimum: 900, kept: 5 * time.Second, changed: true},
	} {
		t.Run(fmt.Sprint(tc.ttl, " ", tc.minimum), func(t *testing.T) {
			list := page("", plain("k8s.", types.RRTypeSoa, tc.ttl, soa+fmt.Sprint(tc.minimum)))
			s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{list, list}}
			z := in(t, s, "Z1")
			if kept, err := z.NegativeTTL(t.Context()); kept != tc.kept || err != nil {
				t.Errorf("it is kept for %s, %v, want %s", kept, err, tc.kept)
			}
			if err := z.LowerMinimum(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, asked := range s.listed {
				if aws.ToString(asked.HostedZoneId) != "Z1" || aws.ToString(asked.StartRecordName) != "k8s." || asked.StartRecordType != types.RRTypeSoa || aws.ToInt32(asked.MaxItems) != 1 {
					t.Errorf("asked for %+v", asked)
				}
			}
			if !tc.changed {
				if len(s.sent) > 0 {
					t.Errorf("sent %+v", s.sent)
				}
				return
			}
			if len(s.sent) != 1 || aws.ToString(s.sent[0].HostedZoneId) != "Z1" || len(s.sent[0].ChangeBatch.Changes) != 1 {
				t.Fatalf("sent %+v", s.sent)
			}
			c := s.sent[0].ChangeBatch.Changes[0]
			set := c.ResourceRecordSet
			if c.Action != types.ChangeActionUpsert || aws.ToString(set.Name) != "k8s." || set.Type != types.RRTypeSoa || aws.ToInt64(set.TTL) != 5 ||
				len(set.ResourceRecords) != 1 || aws.ToString(set.ResourceRecords[0].Value) != soa+"5" {
				t.Errorf("sent %+v", c)
			}
		})
	}
}

// Without a SOA that can be read, nothing is changed and nothing is known.
func TestRoute53WithoutASOA(t *testing.T) {
	good := plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 5")
	for name, tc := range map[string]struct {
		page route53.ListResourceRecordSetsOutput
		err  error
		says string
	}{
		"an error":        {err: errors.New("no idea"), says: "no idea"},
		"nothing":         {page: page(""), says: "k8s."},
		"too much":        {page: page("", good, good), says: "k8s."},
		"another type":    {page: page("", plain("k8s.", types.RRTypeTxt, 900, "a. b. 1 2 3 4 5")), says: "k8s."},
		"without a value": {page: page("", plain("k8s.", types.RRTypeSoa, 900)), says: "k8s."},
		"two values":      {page: page("", plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 5", "a. b. 1 2 3 4 5")), says: "k8s."},
		"six fields":      {page: page("", plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4")), says: "k8s."},
		"eight fields":    {page: page("", plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 5 6")), says: "k8s."},
	} {
		t.Run(name, func(t *testing.T) {
			s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{tc.page, tc.page}, list: tc.err}
			z := in(t, s, "Z1")
			says(t, z.LowerMinimum(t.Context()), []string{"Z1", tc.says})
			kept, err := z.NegativeTTL(t.Context())
			says(t, err, []string{"Z1", tc.says})
			if kept != 0 || len(s.sent) > 0 {
				t.Errorf("%s, %v", kept, s.sent)
			}
		})
	}
	s := &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{page("", plain("k8s.", types.RRTypeSoa, 900, "a. b. 1 2 3 4 x"))}}
	if kept, err := in(t, s, "Z1").NegativeTTL(t.Context()); kept != 0 || err == nil {
		t.Errorf("%s, %v", kept, err)
	}
	s = &stub{t: t, pages: []route53.ListResourceRecordSetsOutput{page("", good)}, change: answered(400, &smithy.GenericAPIError{Code: "Throttling"})}
	if err := in(t, s, "Z1").LowerMinimum(t.Context()); !errors.Is(err, reconcile.ErrThrottled) {
		t.Errorf("%v", err)
	}
}
