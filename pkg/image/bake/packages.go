package bake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Package is one Debian package that is installed on the target.
type Package struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
}

// packages installs missing packages, and leaves no package lists or archives behind.
func (b *baker) packages(ctx context.Context) error {
	installed, err := b.installed(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range b.job.Packages {
		has := func(p Package) bool { return p.Name == name }
		if !slices.ContainsFunc(installed, has) && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	b.step("installing %s", strings.Join(missing, ", "))
	_, err = b.script(ctx, `
export DEBIAN_FRONTEND=noninteractive
command -v apt-get >/dev/null || { echo "there is no apt-get to install them with" >&2; exit 1; }
apt-get -qq update -o Acquire::Languages=none >&2 &&
apt-get -qq install --yes --no-install-recommends -o Dpkg::Use-Pty=0 -- `+quoteAll(missing)+` >&2
status=$?
apt-get clean
rm -rf /var/lib/apt/lists/*
exit $status`, nil)
	if err != nil {
		return b.explain(ctx, fmt.Errorf("%s: %w", strings.Join(missing, ", "), err))
	}
	b.result.Installed = missing
	return nil
}

// installed lists the packages of the target by name.
func (b *baker) installed(ctx context.Context) ([]Package, error) {
	out, err := b.script(ctx, `dpkg-query --show --showformat='${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\n'`, nil)
	if err != nil {
		return nil, fmt.Errorf("listing the packages of the target: %w", err)
	}
	var list []Package
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("listing the packages of the target: %q is not a line of dpkg-query", line)
		}
		if strings.HasPrefix(f[0], "ii") {
			list = append(list, Package{Name: f[1], Version: f[2], Architecture: f[3]})
		}
	}
	slices.SortFunc(list, func(a, b Package) int {
		return strings.Compare(a.Name+"\x00"+a.Architecture, b.Name+"\x00"+b.Architecture)
	})
	return list, nil
}

// quoteAll quotes words for the shell.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = run.Quote(w)
	}
	return strings.Join(quoted, " ")
}
