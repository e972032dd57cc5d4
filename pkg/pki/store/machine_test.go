package store_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/lab/vnet/metadata"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
)

// machine is a region with one machine, which has a role or none.
type machine struct {
	*awsfake.Account
	role    string
	refused error // why EC2 may not take the role
}

const machineID = "i-0123456789abcdef0"

func (m machine) Instance(netip.Addr) (metadata.Instance, bool) {
	return metadata.Instance{ID: machineID, Role: m.role, Placement: metadata.Placement{Account: "123456789012", Region: "us-west-2", Zone: "us-west-2a"},
		Card: metadata.Card{Addr: netip.MustParseAddr("127.0.0.1")}}, true
}

func (m machine) Credentials(_ context.Context, id, role string) (metadata.Credentials, error) {
	if m.refused != nil {
		return metadata.Credentials{}, m.refused
	}
	c, err := m.Issue(role, id, time.Hour)
	return metadata.Credentials{AccessKeyID: c.AccessKey, SecretAccessKey: c.Secret, Token: c.Token, Updated: time.Now(), Expires: c.Expires}, err
}

// open opens the store as the machine does.
func (m machine) open(t *testing.T, faults ...metadata.Fault) store.Store {
	t.Helper()
	region := httptest.NewServer(m.Handler())
	t.Cleanup(region.Close)
	service := metadata.New(m, nil)
	service.SetFaults(machineID, faults...)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = service.Serve(t.Context(), l) // ends with the test
	}()
	t.Cleanup(func() { <-ended })
	s, err := store.Open(t.Context(), store.Location{Kind: store.KindSSM, Root: root}, awsconfig.Machine{Endpoint: region.URL, Metadata: "http://" + l.Addr().String(), Attempts: 1}.Load)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMachine reads as a machine does, by the credentials that its metadata service gives: each thing that can be missing
// on the way has its own error, and the service its own reason.
func TestMachine(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
	}
	all := awsfake.Policy{{Actions: []string{"*"}, Resources: []string{"*"}}}
	for name, tt := range map[string]struct {
		role    string
		policy  awsfake.Policy
		refused error
		fault   metadata.Fault
		want    error
		reason  reason.Reason
	}{
		"reads":                 {"minions", all, nil, metadata.Fault{}, pki.ErrNotFound, reason.Internal},
		"not allowed":           {"minions", nil, nil, metadata.Fault{}, pki.ErrForbidden, reason.Internal},
		"no role":               {"", all, nil, metadata.Fault{}, pki.ErrForbidden, reason.Internal},
		"a role not for EC2":    {"minions", all, errors.New("not trusted"), metadata.Fault{}, pki.ErrForbidden, reason.Internal},
		"turned off":            {"minions", all, nil, metadata.Fault{Status: http.StatusForbidden}, pki.ErrUnreachable, reason.Metadata},
		"no answer of the role": {"minions", all, nil, metadata.Fault{Path: "/latest/meta-data/iam", Status: http.StatusBadRequest}, pki.ErrUnreachable, reason.Metadata},
	} {
		t.Run(name, func(t *testing.T) {
			m := machine{awsfake.New(awsfake.Options{Rates: freely}), tt.role, tt.refused}
			m.AddRole("minions", tt.policy)
			s := m.open(t, tt.fault)
			_, err := s.Get(t.Context(), pki.BootstrapToken)
			if !errors.Is(err, tt.want) || reason.Of(err) != tt.reason {
				t.Errorf("%v, reason %s; want %v, %s", err, reason.Of(err), tt.want, tt.reason)
			}
			// A machine asks for hours, and says each thing once.
			if _, again := s.Get(t.Context(), pki.BootstrapToken); again == nil || again.Error() != err.Error() {
				t.Errorf("at first\n%v\nand then\n%v", err, again)
			}
		})
	}
}
