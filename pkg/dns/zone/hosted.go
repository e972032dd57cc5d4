package zone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/prepare"
	"github.com/hardtack/packer-plugin-hardtack/pkg/dns/record"
)

// Hosted is the zone of Route 53 that a query names, and that may have to be created first.
type Hosted struct {
	API   ZonesAPI
	Query Query
	// Policy is that of the records; its suffix is the zone's name.
	Policy record.Policy
}

var _ prepare.Hosted = Hosted{}

// Find returns the zone's id, "" where there is none.
func (h Hosted) Find(ctx context.Context) (string, error) {
	id, err := FindZone(ctx, h.API, h.Query)
	if errors.Is(err, ErrNoZone) {
		return "", nil
	}
	return id, err
}

// Ensure is EnsureZone with a reference that no other call has.
func (h Hosted) Ensure(ctx context.Context) (id string, created bool, err error) {
	return EnsureZone(ctx, h.API, h.Query, fmt.Sprintf("hardtack-%s-%016x", time.Now().UTC().Format("20060102T150405"), rand.Uint64()))
}

// Open is the zone with this id.
func (h Hosted) Open(id string) (prepare.Zone, error) { return NewRoute53(h.API, id, h.Policy) }
