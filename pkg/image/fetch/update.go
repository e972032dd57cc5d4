package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/semver"

	"github.com/hardtack/packer-plugin-hardtack/pkg/image/lock"
)

// Update is the result of looking for a newer version of a component.
type Update struct {
	Component string `json:"component"`
	From      string `json:"from"`
	// To is the newest patch of From's minor version; it is From if that is the newest or the upstream is not supported.
	To string `json:"to"`
	// Note is a remaining manual step, or why upstream was not asked.
	Note string `json:"note,omitempty"`
	// Problem is why the newer version cannot be used; Values is empty then.
	Problem string `json:"problem,omitempty"`
	// Values are the changes of the lock, for lock.Rewrite.
	Values map[string]string `json:"-"`
}

// Updates looks for newer patch versions of every component, on the minor version in the lock: on GitHub through its
// releases API, on dl.k8s.io in its stable-X.Y.txt; with a mirror, in the mirror's copies of those files. An unreachable
// host is an error; any other failure is the Problem of its component.
func (f *Fetcher) Updates(ctx context.Context, l *lock.Lock) ([]Update, error) {
	a := &asker{client: f.client, releases: map[string][]githubRelease{}}
	var updates []Update
	for i, c := range l.Components {
		u, err := a.update(ctx, fmt.Sprintf("components[%d]", i), c)
		var failed *tryError
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.As(err, &failed) && failed.unreachable:
			return nil, fmt.Errorf("asking for newer versions needs the network: %w"+
				" (run it where upstream can be reached, or name a mirror that has copies)", f.explain(err))
		case err != nil:
			u.Problem, u.Values = f.explain(err).Error(), nil
		}
		updates = append(updates, u)
	}
	return updates, nil
}

// asker queries upstream; each repository's releases only once.
type asker struct {
	client   *client
	releases map[string][]githubRelease
}

// published is the lock's data of a file of a newer version.
type published struct {
	digest, page string
	size         int64
}

// upstreamOf is a service that lists a component's versions, found by the host of its downloads.
type upstreamOf interface {
	// newest returns the newest patch of the version's minor, or the version itself.
	newest(ctx context.Context, version string) (string, error)
	// file returns digest and size of the download at address in that version. want is the lock's current entry.
	file(ctx context.Context, version, address string, want lock.Download) (published, error)
}

var (
	githubForm = regexp.MustCompile(`^https://github\.com/([^/]+/[^/]+)/releases/download/[^/]+/[^/]+$`)
	hexForm    = regexp.MustCompile(`^[0-9a-f]{64}([0-9a-f]{64})?$`)
)

func (a *asker) upstream(address string) (upstreamOf, bool) {
	if m := githubForm.FindStringSubmatch(address); m != nil {
		return &github{a, m[1]}, true
	}
	if hostOf(address) == "dl.k8s.io" {
		return &kubernetes{a}, true
	}
	return nil, false
}

func (a *asker) update(ctx context.Context, field string, c lock.Component) (Update, error) {
	u := Update{Component: c.Name, From: c.Version, To: c.Version}
	if len(c.Release) == 0 {
		u.Note = "has no release in the lock: raise its version in " + c.Modules.Source
		return u, nil
	}
	first := c.Release[slices.Sorted(maps.Keys(c.Release))[0]][0].URL
	up, ok := a.upstream(first)
	if !ok {
		u.Note = "nobody at " + hostOf(first) + " tells versions: raise it by hand"
		return u, nil
	}
	var err error
	if u.To, err = up.newest(ctx, c.Version); err != nil || u.To == c.Version {
		return u, err
	}
	u.Values = map[string]string{field + ".version": u.To}
	// Upstream writes the version with and without its v into file names.
	raise := strings.NewReplacer(bare(c.Version), bare(u.To)).Replace
	for _, arch := range slices.Sorted(maps.Keys(c.Release)) {
		for i, d := range c.Release[arch] {
			at := fmt.Sprintf("%s.release.%s[%d]", field, arch, i)
			if err := a.raise(ctx, at, u, d, raise); err != nil {
				return u, err
			}
		}
	}
	if c.Modules != nil {
		u.Note = fmt.Sprintf("raise %s to %s in %s too", c.Modules.Module, u.To, c.Modules.Source)
	}
	return u, nil
}

// raise adds the changes of one download to the update.
func (a *asker) raise(ctx context.Context, field string, u Update, d lock.Download, raise func(string) string) error {
	address := raise(d.URL)
	up, ok := a.upstream(address)
	if !ok {
		return fmt.Errorf("%s: %s does not publish digests", d.URL, hostOf(d.URL))
	}
	p, err := up.file(ctx, u.To, address, d)
	if err != nil {
		return err
	}
	set := func(name, old, value string) {
		if old != value {
			u.Values[field+"."+name] = value
		}
	}
	set("url", d.URL, address)
	set("digest", d.Digest, p.digest)
	set("published", d.Published, p.page)
	if d.Size > 0 {
		set("size", strconv.FormatInt(d.Size, 10), strconv.FormatInt(p.size, 10))
	}
	for name, member := range d.Members {
		set("members."+name, member, raise(member))
	}
	if s := d.Signature; s != nil {
		set("signature.url", s.URL, raise(s.URL))
		set("signature.certificate", s.Certificate, raise(s.Certificate))
	}
	return nil
}

func bare(version string) string { return strings.TrimPrefix(version, "v") }

// newerPatch reports whether b is a later patch of a's minor version.
func newerPatch(a, b string) bool {
	a, b = "v"+bare(a), "v"+bare(b)
	return semver.IsValid(a) && semver.IsValid(b) && semver.Prerelease(b) == "" &&
		semver.MajorMinor(a) == semver.MajorMinor(b) && semver.Compare(a, b) < 0
}

// kubernetes is dl.k8s.io: it has a file with the newest patch of each minor version, and a digest file beside every
// file.
type kubernetes struct{ *asker }

func (k *kubernetes) newest(ctx context.Context, version string) (string, error) {
	minor := bare(semver.MajorMinor("v" + bare(version)))
	if minor == "" {
		return "", fmt.Errorf("version %q has no minor version", version)
	}
	data, err := k.client.small(ctx, "https://dl.k8s.io/release/stable-"+minor+".txt", 1<<10)
	if err != nil {
		return version, err
	}
	if found := strings.TrimSpace(string(data)); newerPatch(version, found) {
		return found, nil
	}
	return version, nil
}

func (k *kubernetes) file(ctx context.Context, _, address string, want lock.Download) (published, error) {
	algorithm, _, _ := strings.Cut(want.Digest, ":")
	p := published{page: address + "." + algorithm}
	data, err := k.client.small(ctx, p.page, 1<<10)
	if err != nil {
		return p, err
	}
	digest, ok := findDigest(data, path.Base(address), true)
	if !ok {
		return p, fmt.Errorf("%s has no digest", p.page)
	}
	p.digest = algorithm + ":" + digest
	if want.Size > 0 {
		p.size, err = k.client.length(ctx, address)
	}
	return p, err
}

// github is the releases of a repository.
type github struct {
	*asker
	repository string
}

type githubRelease struct {
	Tag        string        `json:"tag_name"`
	Draft      bool          `json:"draft"`
	Prerelease bool          `json:"prerelease"`
	Assets     []githubAsset `json:"assets"`
}

type githubAsset struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Digest is "sha256:hex"; releases from before June 2025 have none.
	Digest string `json:"digest"`
	URL    string `json:"browser_download_url"`
}

// maxReleases bounds the API's response in bytes; a hundred releases with forty assets each are about 8 MiB.
const maxReleases = 32 << 20

func (g *github) list(ctx context.Context) ([]githubRelease, error) {
	if known, ok := g.releases[g.repository]; ok {
		return known, nil
	}
	address := "https://api.github.com/repos/" + g.repository + "/releases?per_page=100"
	data, err := g.client.small(ctx, address, maxReleases)
	if err != nil {
		return nil, err
	}
	var found []githubRelease
	if err := json.Unmarshal(data, &found); err != nil {
		return nil, fmt.Errorf("%s is not a list of releases: %w", address, err)
	}
	g.releases[g.repository] = found
	return found, nil
}

func (g *github) newest(ctx context.Context, version string) (string, error) {
	releases, err := g.list(ctx)
	for _, r := range releases {
		if !r.Draft && !r.Prerelease && newerPatch(version, r.Tag) {
			version = r.Tag
		}
	}
	return version, err
}

func (g *github) file(ctx context.Context, version, address string, _ lock.Download) (published, error) {
	releases, err := g.list(ctx)
	if err != nil {
		return published{}, err
	}
	i := slices.IndexFunc(releases, func(r githubRelease) bool { return r.Tag == version })
	if i < 0 {
		return published{}, fmt.Errorf("%s has no release %s", g.repository, version)
	}
	name, err := url.PathUnescape(path.Base(address))
	if err != nil {
		return published{}, fmt.Errorf("%s: %w", address, err)
	}
	assets := releases[i].Assets
	j := slices.IndexFunc(assets, func(a githubAsset) bool { return a.Name == name })
	if j < 0 {
		return published{}, fmt.Errorf("release %s of %s has no %s", version, g.repository, name)
	}
	p := published{digest: assets[j].Digest, size: assets[j].Size, page: "https://github.com/" + g.repository + "/releases/tag/" + version}
	if digest, ok := strings.CutPrefix(p.digest, "sha256:"); ok && hexForm.MatchString(digest) {
		return p, nil
	}
	for _, sums := range checksumFiles(assets, name) {
		data, err := g.client.small(ctx, sums.URL, 1<<20)
		if err != nil {
			return p, err
		}
		if digest, ok := findDigest(data, name, strings.HasPrefix(sums.Name, name)); ok {
			p.digest, p.page = "sha256:"+digest, sums.URL
			return p, nil
		}
	}
	return p, fmt.Errorf("release %s of %s publishes no sha256 of %s", version, g.repository, name)
}

// checksumFiles lists the assets that may have the sha256 of the asset of that name, the most specific first.
func checksumFiles(assets []githubAsset, name string) []githubAsset {
	var own, all []githubAsset
	for _, a := range assets {
		switch lower := strings.ToLower(a.Name); {
		case a.Name == name+".sha256" || a.Name == name+".sha256sum":
			own = append(own, a)
		case strings.HasPrefix(lower, "sha256sum") || strings.HasSuffix(lower, ".sha256sum") && !strings.Contains(lower, ".tar") && !strings.Contains(lower, ".tgz"):
			all = append(all, a)
		}
	}
	return append(own, all...)
}

// findDigest parses the output of sha256sum: the digest in the line of that name. own means that the file is about
// that name only and may have the bare digest.
func findDigest(data []byte, name string, own bool) (string, bool) {
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !hexForm.MatchString(fields[0]) {
			continue
		}
		if len(fields) == 1 && own || len(fields) == 2 && path.Base(strings.TrimPrefix(fields[1], "*")) == name {
			return fields[0], true
		}
	}
	return "", false
}

// length requests the size of a file without reading it.
func (c *client) length(ctx context.Context, address string) (int64, error) {
	var n int64
	err := c.retry(ctx, address, func() error {
		resp, err := c.do(ctx, address, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return status(resp)
		}
		if n = resp.ContentLength; n <= 0 {
			return fmt.Errorf("%s has no known size", address)
		}
		return nil
	})
	return n, err
}
