package fetch

import (
	"errors"
	"slices"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// TestWithin: a component within another's program is linked to it where that one was compiled, whatever their order in the lock
// and however it came that it was compiled; and is compiled itself where the other is upstream's release.
func TestWithin(t *testing.T) {
	data := noise(10)
	u := newUpstream(t)
	u.put(address, data)
	// What is gone has content of its own: the cache may have what is not.
	here, gone := tool("host", address, data), tool("host", "https://up.example/gone", noise(11))
	guest, guestHere := tool("guest", "", nil), tool("guest", address, data)
	guestGone := tool("guest", "https://up.example/gone", noise(12))
	guest.Release = nil
	locked := func(guest, host lock.Component) *lock.Lock {
		for _, c := range []*lock.Component{&guest, &host} {
			c.Modules = &lock.Modules{Module: "example.com/" + c.Name}
		}
		guest.Files = slices.Clone(guest.Files)
		guest.Files[0].Within = host.Files[0].Path
		return &lock.Lock{Components: []lock.Component{guest, host}}
	}
	linked, own, both := []string{"guest within host"}, []string{"guest"}, []string{"host"}
	for name, test := range map[string]struct {
		source        Source
		guest, host   lock.Component
		built, linked []string
		from          Source
	}{
		"modules":                              {Modules, guest, here, both, linked, Modules},
		"modules, though there are releases":   {Modules, guestHere, here, both, linked, Modules},
		"auto, a release of the host":          {Auto, guest, here, own, nil, Modules},
		"auto, no release to get":              {Auto, guest, gone, both, linked, Modules},
		"auto, no release of either to get":    {Auto, guestGone, gone, both, linked, Modules},
		"auto, a release of the guest":         {Auto, guestHere, gone, both, nil, Release},
		"auto, a release, but not the guest's": {Auto, guestGone, here, own, nil, Modules},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := newFetcher(t, Options{Mirror: u.URL, Source: test.source}), &fakeMaker{}
			f.builder = m
			results, err := f.All(t.Context(), locked(test.guest, test.host))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.built, test.built) || !slices.Equal(m.linked, test.linked) {
				t.Errorf("built %v and linked %v, want %v and %v", m.built, m.linked, test.built, test.linked)
			}
			r := results[0]
			if r.Component != "guest" || r.Version != "v1.0.0" || r.Source != test.from || (r.Origin == "example.com/guest") != (test.from == Modules) || len(r.Entries) != 1 || len(r.Within) != len(test.linked) {
				t.Errorf("the guest is %+v", r)
			}
		})
	}
	f := newFetcher(t, Options{Source: Modules})
	f.builder = &fakeMaker{refuses: errors.New("another version")}
	if results, err := f.All(t.Context(), locked(guest, here)); err == nil || results != nil {
		t.Errorf("a host with another version: %v, %v", results, err)
	}
}
