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
	locked := func(host lock.Component) *lock.Lock {
		host.Modules = &lock.Modules{Module: "example.com/" + host.Name}
		guest := tool("guest", "", nil)
		guest.Release, guest.Modules = nil, &lock.Modules{Module: "example.com/guest"}
		guest.Files[0].Within = host.Files[0].Path
		return &lock.Lock{Components: []lock.Component{guest, host}}
	}
	here, gone := tool("host", address, data), tool("host", "https://up.example/gone", data)
	linked, own := []string{"guest within host"}, []string{"guest"}
	for name, test := range map[string]struct {
		source        Source
		host          lock.Component
		built, linked []string
	}{
		"modules":                 {Modules, here, []string{"host"}, linked},
		"auto, a release":         {Auto, here, own, nil},
		"auto, no release to get": {Auto, gone, []string{"host"}, linked},
	} {
		t.Run(name, func(t *testing.T) {
			f, m := newFetcher(t, Options{Mirror: u.URL, Source: test.source}), &fakeMaker{}
			f.builder = m
			results, err := f.All(t.Context(), locked(test.host))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.built, test.built) || !slices.Equal(m.linked, test.linked) {
				t.Errorf("built %v and linked %v, want %v and %v", m.built, m.linked, test.built, test.linked)
			}
			r := results[0]
			if r.Component != "guest" || r.Version != "v1.0.0" || r.Source != Modules || r.Origin != "example.com/guest" || len(r.Entries) != 1 || len(r.Within) != len(test.linked) {
				t.Errorf("the guest is %+v", r)
			}
		})
	}
	f := newFetcher(t, Options{Source: Modules})
	f.builder = &fakeMaker{refuses: errors.New("another version")}
	if results, err := f.All(t.Context(), locked(here)); err == nil || results != nil {
		t.Errorf("a host with another version: %v, %v", results, err)
	}
}
