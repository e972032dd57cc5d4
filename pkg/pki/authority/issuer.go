package authority

import (
	"context"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
)

// Putter is a store in which an object can be replaced.
type Putter interface {
	Getter
	Put(ctx context.Context, object string, content []byte) error
}

// RecordIssuer writes down where the keys of the service accounts are published, for the rotation of these keys. What is there
// already is not written again.
func RecordIssuer(ctx context.Context, s Putter, r issuer.Record) error {
	data, err := r.Marshal()
	if err != nil {
		return err
	}
	if have, err := s.Get(ctx, pki.PublicIssuer); err == nil && string(have) == string(data) {
		return nil
	}
	return s.Put(ctx, pki.PublicIssuer, data)
}
