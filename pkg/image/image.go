// Package image says what an image is to be before anything of it is made: the tree that a bake writes, what a lock and the
// plain files put into it, and whether a baked image still is what would be baked now.
//
// Its rule: it fetches and computes, and writes no image; everyone who wants to know the tree composes it here.
package image

import (
	"context"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/fetch"
)

// Plan is an image that is to be composed.
type Plan struct {
	bake.Plan
	// Fetch says where components come from. Assets and Arch are those of the plan.
	Fetch fetch.Options
	// OnFallback is told of each component that does not come from the source that it should; nil: nobody is.
	OnFallback func(fetch.Result)
}

// OptionsError is a Fetch that asks for what there is not.
type OptionsError struct{ Err error }

func (e *OptionsError) Error() string { return e.Err.Error() }

func (e *OptionsError) Unwrap() error { return e.Err }

// Compose fetches the components of the lock, and composes the tree and what describes it. Progress and Log of the job are
// the caller's to set.
func (p Plan) Compose(ctx context.Context) (bake.Job, error) {
	o := p.Fetch
	o.Assets, o.Arch = p.Assets, p.Architecture
	fetcher, err := fetch.New(o)
	if err != nil {
		return bake.Job{}, &OptionsError{err}
	}
	results, err := fetcher.All(ctx, p.Lock)
	if err != nil {
		return bake.Job{}, err
	}
	components := make([]bake.Fetched, 0, len(results))
	for _, r := range results {
		if r.Fallback != "" && p.OnFallback != nil {
			p.OnFallback(r)
		}
		made, err := p.materials(r)
		if err != nil {
			return bake.Job{}, err
		}
		components = append(components, bake.Fetched{Entries: r.Entries,
			Source: bake.Source{Component: r.Component, Kind: string(r.Source), Origin: r.Origin, Materials: made}})
	}
	return p.Job(components)
}
