package ami

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

const (
	aKey           = "arn:aws:kms:us-west-2:111122223333:key/0b1c2d3e"
	anotherKey     = "arn:aws:kms:us-east-1:111122223333:key/4f5a6b7c"
	anAccount      = "111122223333"
	anOrganisation = "arn:aws:organizations::444455556666:organization/o-abcdefghij"
)

// problems counts the errors that were joined into one.
func problems(err error) int {
	if err == nil {
		return 0
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return 1
	}
	n := 0
	for _, e := range joined.Unwrap() {
		n += problems(e)
	}
	return n
}

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	a, err := pki.NewAuthority("db", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a.Certificate.Raw
}

func manyTags(n int) map[string]string {
	tags := map[string]string{}
	for i := range n {
		tags[fmt.Sprint("tag-", i)] = "x"
	}
	return tags
}

func TestCheckRequest(t *testing.T) {
	db := certificate(t)
	for _, c := range []struct {
		name   string
		change func(*Request)
		wrong  int
	}{
		{"the least", func(*Request) {}, 0},
		{"no disk", func(r *Request) { r.Disk = nil }, 1},
		{"an empty disk", func(r *Request) { r.Disk = disk("") }, 1},
		{"a disk of one byte", func(r *Request) { r.Disk = &memory{content: []byte("x")} }, 0},
		{"no name", func(r *Request) { r.Image = "" }, 1},
		{"the longest name", func(r *Request) { r.Image = strings.Repeat("a", 100) }, 0},
		{"a longer name", func(r *Request) { r.Image = strings.Repeat("a", 101) }, 1},
		{"a name with all kinds", func(r *Request) { r.Image = "my/Line_1.0-x" }, 0},
		{"a name with a blank", func(r *Request) { r.Image = "my line" }, 1},
		{"arm64", func(r *Request) { r.Architecture = "arm64" }, 0},
		{"AWS's name of an architecture", func(r *Request) { r.Architecture = "x86_64" }, 1},
		{"the account's key", func(r *Request) { r.Key = DefaultKey }, 0},
		{"a key", func(r *Request) { r.Key = aKey }, 0},
		{"a key's alias", func(r *Request) { r.Key = "alias/images" }, 1},
		{"the largest volume", func(r *Request) { r.Volume = 16384 }, 0},
		{"a larger volume", func(r *Request) { r.Volume = 16385 }, 1},
		{"less than no volume", func(r *Request) { r.Volume = -1 }, 1},
		{"UEFI", func(r *Request) { r.UEFI = true }, 0},
		{"Secure Boot", func(r *Request) { r.UEFI, r.SecureBoot = true, db }, 0},
		{"Secure Boot by BIOS", func(r *Request) { r.SecureBoot = db }, 1},
		{"no certificate", func(r *Request) { r.UEFI, r.SecureBoot = true, []byte("none") }, 1},
		{"neither a certificate nor UEFI", func(r *Request) { r.SecureBoot = []byte("none") }, 2},
		{"as many tags as fit", func(r *Request) { r.Tags = manyTags(39) }, 0},
		{"one tag more", func(r *Request) { r.Tags = manyTags(40) }, 1},
		{"the longest tag", func(r *Request) { r.Tags = map[string]string{strings.Repeat("k", 127): strings.Repeat("v", 255)} }, 0},
		{"a tag without a key", func(r *Request) { r.Tags = map[string]string{"": "x"} }, 1},
		{"a tag without a value", func(r *Request) { r.Tags = map[string]string{"x": ""} }, 0},
		{"a longer key", func(r *Request) { r.Tags = map[string]string{strings.Repeat("k", 128): ""} }, 1},
		{"a longer value", func(r *Request) { r.Tags = map[string]string{"k": strings.Repeat("v", 256)} }, 1},
		{"Hardtack's tag", func(r *Request) { r.Tags = map[string]string{TagDigest: "x"} }, 1},
		{"AWS's tag", func(r *Request) { r.Tags = map[string]string{"AWS:x": "x"} }, 1},
		{"everything", func(r *Request) {
			*r = Request{Volume: -1, Key: "x", Tags: map[string]string{"": "", "aws:x": ""}}
		}, 7},
	} {
		r := requestOf(disk("a"))
		c.change(&r)
		if err := r.Check(); problems(err) != c.wrong {
			t.Errorf("%s: want %d problems: %v", c.name, c.wrong, err)
		}
	}
}

func TestCheckDistribution(t *testing.T) {
	const home = "us-west-2"
	with := LaunchPermissions{Accounts: []string{anAccount}, Organisations: []string{anOrganisation}}
	for _, c := range []struct {
		name    string
		key     string
		targets []Target
		with    LaunchPermissions
		wrong   int
	}{
		{"nothing", NoKey, nil, LaunchPermissions{}, 0},
		{"two regions", NoKey, []Target{{"us-east-1", NoKey}, {"eu-central-1", DefaultKey}}, LaunchPermissions{}, 0},
		{"no region", NoKey, []Target{{"Oregon", NoKey}}, LaunchPermissions{}, 1},
		{"its own region", NoKey, []Target{{home, NoKey}}, LaunchPermissions{}, 1},
		{"a region twice", NoKey, []Target{{"us-east-1", NoKey}, {"us-east-1", aKey}}, LaunchPermissions{}, 1},
		{"a region's key", aKey, []Target{{"us-east-1", anotherKey}}, LaunchPermissions{}, 0},
		{"no key", aKey, []Target{{"us-east-1", "x"}}, LaunchPermissions{}, 1},
		{"shared", NoKey, []Target{{"us-east-1", NoKey}}, with, 0},
		{"shared with an account", NoKey, nil, LaunchPermissions{Accounts: []string{anAccount}}, 0},
		{"shared, with keys", aKey, []Target{{"us-east-1", anotherKey}}, with, 0},
		{"shared, with keys of copies", NoKey, []Target{{"us-east-1", anotherKey}}, with, 0},
		{"shared, with the account's key", DefaultKey, nil, with, 1},
		{"shared with an account, with the account's key", DefaultKey, nil, LaunchPermissions{Accounts: []string{anAccount}}, 1},
		{"shared with an organisation, with the account's key", DefaultKey, nil, LaunchPermissions{Organisations: []string{anOrganisation}}, 1},
		{"not shared, with the account's key", DefaultKey, []Target{{"us-east-1", NoKey}}, LaunchPermissions{}, 0},
		{"shared, with the account's key for a copy", NoKey, []Target{{"us-east-1", DefaultKey}}, with, 1},
		{"shared, with the account's key for the first of two", NoKey, []Target{{"us-east-1", DefaultKey}, {"eu-central-1", NoKey}}, with, 1},
		{"shared, with no key for the copy of what has one", aKey, []Target{{"us-east-1", NoKey}}, with, 1},
		{"shared, with no key for the first of two", aKey, []Target{{"us-east-1", NoKey}, {"eu-central-1", aKey}}, with, 1},
		{"no account", NoKey, nil, LaunchPermissions{Accounts: []string{"12345", anAccount}}, 1},
		{"no organisation", NoKey, nil, LaunchPermissions{Organisations: []string{anAccount, anOrganisation}}, 1},
		{"everything", DefaultKey, []Target{{"x", "y"}, {home, NoKey}}, LaunchPermissions{[]string{"x"}, []string{"y"}}, 6},
	} {
		if err := CheckDistribution(home, c.key, c.targets, c.with); problems(err) != c.wrong {
			t.Errorf("%s: want %d problems: %v", c.name, c.wrong, err)
		}
	}
}

// All that is wrong with a publication is said at once, before anything is done.
func TestCheckPipeline(t *testing.T) {
	good := Pipeline{Request: requestOf(disk("a")), Home: "us-west-2"}
	for _, c := range []struct {
		name   string
		change func(*Pipeline)
		wrong  int
	}{
		{"the least", func(*Pipeline) {}, 0},
		{"a channel", func(j *Pipeline) { j.Channel = "stable" }, 0},
		{"no channel's name", func(j *Pipeline) { j.Channel = "Stable" }, 1},
		{"everything", func(j *Pipeline) { j.Disk, j.Channel, j.Copies = nil, "-", []Target{{"us-west-2", NoKey}} }, 3},
	} {
		j := good
		c.change(&j)
		if err := j.Check(); problems(err) != c.wrong {
			t.Errorf("%s: want %d problems: %v", c.name, c.wrong, err)
		}
		if c.wrong > 0 {
			a := newAccount()
			if _, err := RunPipeline(t.Context(), a.publisher(t, t.TempDir()), regions{}, j, nil); problems(err) != c.wrong || len(a.calls) > 0 {
				t.Errorf("%s: %v, after %v", c.name, err, a.calls)
			}
		}
	}
}

// What has a name has it for good: under another, every image would be published again.
func TestNameStays(t *testing.T) {
	m := manifest(4*BlockSize, "0a 2b")
	for _, c := range []struct {
		name   string
		change func(*Request)
		want   string
	}{
		{"as it is", func(*Request) {}, "test-ce4813507a9ad60a"},
		{"by another family", func(r *Request) { r.Image = "other" }, "other-ce4813507a9ad60a"},
		{"described and tagged", func(r *Request) { r.Description, r.Tags, r.Facts = "x", manyTags(1), manyTags(2) }, "test-ce4813507a9ad60a"},
		{"for arm64", func(r *Request) { r.Architecture = "arm64" }, "test-5ab2088a0005bdda"},
		{"with a key", func(r *Request) { r.Key = aKey }, "test-373d2a952707a3c0"},
		{"with the volume that it needs", func(r *Request) { r.Volume = 1 }, "test-ce4813507a9ad60a"},
		{"on a larger volume", func(r *Request) { r.Volume = 2 }, "test-9de4faec8cb50880"},
		{"with a certificate", func(r *Request) { r.SecureBoot = []byte("db") }, "test-d02bdd5ea8a7c720"},
	} {
		r := requestOf(disk("a"))
		c.change(&r)
		if got := r.Name(m); got != c.want {
			t.Errorf("%s: it is named %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTagsOfImage(t *testing.T) {
	m := manifest(4*BlockSize, "0a 2b")
	r := requestOf(disk("a"))
	r.Key, r.Tags, r.Facts = aKey, map[string]string{"team": "x"}, map[string]string{"kubernetes": "v1.36.3"}
	want := map[string]string{
		"Name": r.Name(m), "hardtack:image": "test", "hardtack:digest": r.Identity(m).String(), "hardtack:disk-size": "2097152",
		"hardtack:key": aKey, "hardtack:kubernetes": "v1.36.3", "team": "x",
	}
	if diff := cmp.Diff(want, r.tags(m)); diff != "" {
		t.Error(diff)
	}
	if got := (Image{Tags: r.tags(m)}).Kubernetes(); got != "v1.36.3" {
		t.Errorf("its Kubernetes is %q", got)
	}
	// The operator's own name of an image is shown in lists.
	r.Tags = map[string]string{"Name": "mine"}
	if got := r.tags(m)["Name"]; got != "mine" {
		t.Errorf("it is shown as %q", got)
	}
	if r.Description = "mine"; r.description(m) != "mine" {
		t.Errorf("it is described as %q", r.description(m))
	}
	if r.Description = ""; !strings.Contains(r.description(m), m.Digest().String()) {
		t.Errorf("it is described as %q", r.description(m))
	}
}

var errNoRegion = errors.New("no such region")

// regions are accounts by region.
type regions map[string]*account

func (r regions) Region(name string) (Region, error) {
	if r[name] == nil {
		return nil, errNoRegion
	}
	return r[name], nil
}

func (r regions) Channels(name string) (Channels, error) {
	if r[name] == nil {
		return nil, errNoRegion
	}
	return r[name], nil
}
