package spec

import (
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/near"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// ServiceAccounts is how pods' tokens are issued, and where the keys are published that verify them.
type ServiceAccounts struct {
	// Issuer is the URL that pods' tokens name as their issuer. With the default, https://masters.<name>.k8s, only the cluster itself can
	// verify them; any other is a URL below which AWS and others find the keys, once hardtack pki issuer publish has written them there.
	Issuer string `yaml:"issuer"`
	// AcceptedIssuers are issuers whose tokens the API servers accept beside their own, signed with the same keys. By default they
	// are the issuer that the cluster has without this field, so that older tokens stay good.
	AcceptedIssuers []string `yaml:"acceptedIssuers"`
	// PublishTo is where hardtack pki issuer publish writes the keys: s3://BUCKET/PREFIX (with ?region=REGION), dir:/PATH, or none. An
	// issuer that is a bucket's URL says it by itself.
	PublishTo string `yaml:"publishTo"`
}

// PublishNone is the value of ServiceAccounts.PublishTo for keys that are not published, or by other means.
const PublishNone = "none"

// ownIssuer is the issuer of the image's API servers: a name that only the cluster knows.
func ownIssuer(cluster string) string { return "https://" + role.Masters.Host(cluster) }

// serviceAccounts completes the issuer, what is accepted beside it, and where its keys go.
func (f *completer) serviceAccounts() {
	in, out := f.in.ServiceAccounts, &f.out.Cluster.ServiceAccounts
	own := ownIssuer(f.out.Cluster.Name)
	out.Issuer = orDefault(f, "serviceAccounts.issuer", in.Issuer, own, Origin{Derived, "name"})
	var accepted []string
	from := byHardtack
	if out.Issuer != own {
		accepted, from = []string{own}, Origin{Derived, "name"}
	}
	out.AcceptedIssuers = listOrDefault(f, "serviceAccounts.acceptedIssuers", in.AcceptedIssuers, accepted, from)
	if slices.Contains(out.AcceptedIssuers, out.Issuer) {
		f.hint("serviceAccounts.acceptedIssuers", "leave it out here", "%s is serviceAccounts.issuer, which is accepted anyway", out.Issuer)
	}
	to, toFrom := PublishNone, byHardtack
	public := f.out.PublicIssuer()
	if bucket := bucketOfURL(public); bucket != "" {
		to, toFrom = bucket, Origin{Derived, "serviceAccounts.issuer"}
		if public != out.Issuer {
			toFrom.From = "serviceAccounts.acceptedIssuers"
		}
	}
	out.PublishTo = orDefault(f, "serviceAccounts.publishTo", in.PublishTo, to, toFrom)
	if public == "" && out.PublishTo != PublishNone {
		f.hint("serviceAccounts.publishTo", "name the URL in serviceAccounts.issuer", "%s is an issuer that nobody outside the cluster can ask for keys", own)
	}
	for _, flag := range []string{"service-account-issuer", "service-account-jwks-uri"} {
		if f.source.given["kubeAPIServer.flags."+flag] && f.out.Origins["serviceAccounts.issuer"].Kind == User && !f.sameIssuer(flag) {
			f.hint("kubeAPIServer.flags."+flag, "leave it out", "serviceAccounts.issuer sets it")
		}
	}
}

// sameIssuer reports whether the flag in the document, as in one that is complete, says what follows from the issuer.
func (f *completer) sameIssuer(flag string) bool {
	for _, d := range f.issuerFlags() {
		if d.name != flag {
			continue
		}
		items, isList := f.in.KubeAPIServer.Flags[flag].([]any)
		if !isList {
			items = []any{f.in.KubeAPIServer.Flags[flag]}
		}
		given, err := texts(items)
		want, isMany := d.value.([]string)
		if !isMany {
			want = []string{d.value.(string)}
		}
		return err == nil && slices.Equal(given, want)
	}
	return false
}

// issuerFlags are the API server's flags, none where the image's are right: the first issuer signs, and all are accepted. The
// audiences of tokens for the API are these issuers too, by upstream's default.
func (f *completer) issuerFlags() []derivation {
	a := f.out.Cluster.ServiceAccounts
	own := ownIssuer(f.out.Cluster.Name)
	if a.Issuer == own && len(a.AcceptedIssuers) == 0 {
		return nil
	}
	flags := []derivation{{apiServer, "service-account-issuer", append([]string{a.Issuer}, a.AcceptedIssuers...), "serviceAccounts.issuer", false}}
	if a.Issuer != own {
		flags = append(flags, derivation{apiServer, "service-account-jwks-uri", issuer.KeysURL(a.Issuer), "serviceAccounts.issuer", false})
	}
	return flags
}

// serviceAccounts checks what can be said before a document is completed.
func (v checker) serviceAccounts(a ServiceAccounts) {
	v.issuer("serviceAccounts.issuer", a.Issuer)
	for i, u := range a.AcceptedIssuers {
		if u == "" {
			v.errorf(at("serviceAccounts.acceptedIssuers", i), "is empty")
		}
		v.issuer(at("serviceAccounts.acceptedIssuers", i), u)
		if slices.Index(a.AcceptedIssuers, u) < i {
			v.errorf(at("serviceAccounts.acceptedIssuers", i), "%q is named twice", u)
		}
	}
	if to := a.PublishTo; to != "" && to != PublishNone {
		if _, err := machine.ParseBackups(to); err != nil {
			v.hint("serviceAccounts.publishTo", near.DidYouMean(to, []string{PublishNone}), "neither %s nor a place: %v", PublishNone, err)
		}
	}
}

// issuer checks a URL as Kubernetes, OpenID Connect Discovery and IAM want it: what they compare is the text.
func (v checker) issuer(field, text string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" || u.Opaque != "" || u.User != nil || strings.ContainsAny(text, "?#% \t"):
		v.errorf(field, "%q is not a URL of the form https://HOST/PATH", text)
	case len(text) > 255:
		v.errorf(field, "has %d characters, and IAM takes 255", len(text))
	case strings.HasSuffix(text, "/") || u.Path != "" && path.Clean(u.Path) != u.Path:
		v.hint(field, "write "+strings.TrimSuffix("https://"+u.Host+path.Clean("/"+u.Path), "/"), "%q has a slash too many, and issuers are compared as texts", text)
	default:
		if _, err := netip.ParseAddr(u.Hostname()); err != nil && !domainForm.MatchString(u.Hostname()) {
			v.errorf(field, "%q is neither a DNS name nor an address", u.Hostname())
		}
	}
}

// bucketOfURL is the place in S3 that a URL is of, as machine.ParseBackups takes it: by the bucket's host name, or by its path. It is
// empty for every other URL.
func bucketOfURL(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Port() != "" {
		return ""
	}
	host, aws := strings.CutSuffix(strings.TrimSuffix(u.Host, ".cn"), ".amazonaws.com")
	bucket, region, dot := "", "", false
	if rest, isPath := strings.CutPrefix(host, "s3."); isPath {
		region, dot = rest, true
		bucket, u.Path, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	} else {
		bucket, region, dot = strings.Cut(host, ".s3.")
	}
	if !aws || !dot || region == "" || strings.Contains(region, ".") {
		return ""
	}
	place := machine.Backups{Kind: machine.BackupsS3, Bucket: bucket, Prefix: strings.Trim(u.Path, "/"), Region: region}.String()
	if _, err := machine.ParseBackups(place); err != nil {
		return ""
	}
	return place
}

// PublicIssuer is the issuer whose keys can be published: the one that new tokens name, or else the first accepted one, for a cluster
// that will. It is empty for a cluster with none but the name that only itself knows.
func (c *Complete) PublicIssuer() string {
	a := c.Cluster.ServiceAccounts
	for _, u := range append([]string{a.Issuer}, a.AcceptedIssuers...) {
		if u != ownIssuer(c.Cluster.Name) {
			return u
		}
	}
	return ""
}
