package zone_test

import (
	"errors"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/zone"
)

// A zone that does not exist is no error, and what cannot be known is.
func TestHosted(t *testing.T) {
	a, client := account(t)
	h := zone.Hosted{API: client("AKIDADMIN"), Query: private, Policy: record.DefaultPolicy()}
	if id, err := h.Find(t.Context()); id != "" || err != nil {
		t.Errorf("an empty account: %q, %v", id, err)
	}
	id, created, err := h.Ensure(t.Context())
	if id == "" || !created || err != nil {
		t.Fatalf("%q, %v, %v", id, created, err)
	}
	if got, err := h.Find(t.Context()); got != id || err != nil {
		t.Errorf("%q, %v, want %q", got, err, id)
	}
	z, err := h.Open(id)
	if err != nil || z.ID() != id {
		t.Fatalf("%v, %v", z, err)
	}
	if have, err := z.Read(t.Context(), "demo"); len(have) > 0 || err != nil {
		t.Errorf("a new zone has %v, %v", have, err)
	}
	// A second zone has a reference of its own, for Route 53 takes none twice.
	other := h
	other.Query.VPC = "vpc-0fffffffffffffff0"
	if got, created, err := other.Ensure(t.Context()); got == id || !created || err != nil {
		t.Errorf("%q, %v, %v", got, created, err)
	}
	a.SetPolicy("AKIDOTHER", awsfake.Policy{})
	h.API = client("AKIDOTHER")
	if got, err := h.Find(t.Context()); got != "" || err == nil || errors.Is(err, zone.ErrNoZone) {
		t.Errorf("without the permission: %q, %v", got, err)
	}
}
