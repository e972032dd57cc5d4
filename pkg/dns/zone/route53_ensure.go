package zone

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/route53/types"
)

// EnsureZone is FindZone, and CreateZone if there is no zone; it reports whether it created the zone. It may be
// repeated after every error, and may run concurrently: a VPC can only be associated with one zone of a name.
func EnsureZone(ctx context.Context, api ZonesAPI, q Query, reference string) (id string, created bool, err error) {
	id, err = FindZone(ctx, api, q)
	if !errors.Is(err, ErrNoZone) {
		return id, false, err
	}
	id, err = CreateZone(ctx, api, q, reference)
	var there *types.ConflictingDomainExists
	if !errors.As(err, &there) {
		return id, id != "", err
	}
	if id, again := FindZone(ctx, api, q); again == nil {
		return id, false, nil // another process was faster
	}
	return "", false, fmt.Errorf("%w: the VPC sees a zone of this name that is not this account's "+
		"(whose it is: aws route53 list-hosted-zones-by-vpc --vpc-id %s --vpc-region %s): use that account, or choose another name", err, q.VPC, q.Region)
}
