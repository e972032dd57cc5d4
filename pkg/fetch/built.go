package fetch

import (
	"context"

	"github.com/hardtack/packer-plugin-hardtack/pkg/component"
)

// Built reports whether the cache has every program of the component as it is built from modules, so
// that Get with the source Modules compiles nothing.
func (f *Fetcher) Built(ctx context.Context, c component.Component) (bool, error) {
	b, ok := f.builder.(*builder)
	if !ok || c.Modules == nil {
		return false, nil
	}
	source, err := readSource(b.assets, c)
	if err != nil {
		return false, err
	}
	tools, err := findToolchain(ctx, b.arch)
	if err != nil {
		return false, err
	}
	for _, p := range c.Modules.Programs {
		j := job{component: c, program: p, source: source, arch: b.arch, tools: tools}
		compilers, err := tools.compilers(ctx, p)
		if err != nil {
			return false, err
		}
		key, err := j.key(compilers)
		if err != nil {
			return false, err
		}
		if known, ok := f.cache.lookup(key); !ok || !f.cache.intact(ctx, known.blob) {
			return false, nil
		}
	}
	return true, nil
}
