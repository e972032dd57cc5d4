package spec

import (
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// Proxy is the proxy by which machines reach what is outside of the cluster: images' registries, and the APIs of the cloud. All fields are empty
// for none.
type Proxy struct {
	// HTTP is the URL of the proxy for http, as in http://proxy.example.org:3128. It has no password: every process of a machine can read it.
	HTTP string `yaml:"http"`
	// HTTPS is the URL of the proxy for https, which is that for http if it is not set. The scheme is that of the way to the proxy, mostly http.
	HTTPS string `yaml:"https"`
	// NoProxy are the names, domains with a dot before them, addresses and ranges that are reached without the proxy. Those of the cluster itself
	// are always added.
	NoProxy []string `yaml:"noProxy"`
}

// proxyFile is the drop-in of the programs that use the proxy: what pulls images, the kubelet with what it starts for credentials, and the
// agent. The API server has none, since it would ask kubelets by it.
const proxyFile = "60-hardtack-proxy.conf"

// agentUnits is the directory of drop-ins for all units whose names begin with hardtack- (systemd.unit(5)).
const agentUnits = "hardtack-.service.d"

// metadataHosts are the addresses of EC2's metadata service, and its time server's.
var metadataHosts = []string{"169.254.0.0/16", "fd00:ec2::/32"}

// proxy completes the proxy.
func (f *completer) proxy() {
	in, out := f.in.Proxy, &f.out.Cluster.Proxy
	out.HTTP = orDefault(f, "proxy.http", in.HTTP, "", byHardtack)
	out.HTTPS = orDefault(f, "proxy.https", in.HTTPS, out.HTTP, Origin{Derived, "proxy.http"})
	f.proxyURL("proxy.http", out.HTTP)
	if out.HTTPS != out.HTTP {
		f.proxyURL("proxy.https", out.HTTPS)
	}
	for i, name := range in.NoProxy {
		f.noProxy(at("proxy.noProxy", i), name)
	}
	var own []string
	if out.HTTP != "" || out.HTTPS != "" {
		own = f.ownHosts()
	} else if len(in.NoProxy) > 0 {
		f.hint("proxy.noProxy", "write proxy.http", "there is no proxy to leave out")
	}
	all := slices.Clone(own)
	for _, name := range in.NoProxy {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	out.NoProxy = listOrDefault(f, "proxy.noProxy", all, own, Origin{Derived, "network"})
}

// ownHosts are what no machine asks a proxy for: itself, the metadata service, the cluster's names, and the addresses of pods and Services.
func (f *completer) ownHosts() []string {
	n := f.out.Cluster.Network
	own := append([]string{"localhost", "127.0.0.0/8"}, metadataHosts...)
	own = append(own, "."+role.Domain(f.out.Cluster.Name), n.ServiceCIDR, n.PodCIDR, ".svc", "."+n.DNSDomain)
	return append(own, f.out.Cluster.API.Names...)
}

func (f *completer) proxyURL(field, text string) {
	if text == "" {
		return
	}
	const form = "write it as in http://proxy.example.org:3128"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) || strings.ContainsAny(text, " \t\r\n\"\\"):
		f.hint(field, form, "%q is not the URL of a proxy", text)
	case u.User != nil:
		f.hint(field, "let the proxy know machines by their addresses", "has a user, and user data is no place for a secret")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		f.hint(field, form, "%q has more than a host and a port", text)
	}
}

var noProxyForm = regexp.MustCompile(`^\.?[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*$`)

// noProxy checks one entry, of which Go's programs know these forms (golang.org/x/net/http/httpproxy).
func (f *completer) noProxy(field, text string) {
	host := text
	if h, port, err := net.SplitHostPort(text); err == nil {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			f.errorf(field, "%q is not a port", port)
			return
		}
		host = h
	}
	_, address := netip.ParseAddr(host)
	_, prefix := netip.ParsePrefix(host)
	switch {
	case text == "*":
		f.hint(field, "leave proxy out", "* is everything, and there would be no proxy")
	case strings.HasPrefix(host, "*."):
		f.hint(field, "write "+strings.TrimPrefix(text, "*"), "%q has a *, which programs do not know: a domain begins with a dot", text)
	case address != nil && prefix != nil && !noProxyForm.MatchString(host):
		f.errorf(field, "%q is neither a name, a domain, an address nor a range", text)
	}
}

// proxies are the drop-ins of the proxy.
func (c *Complete) proxies(g Group) []File {
	p := c.Cluster.Proxy
	if p.HTTP == "" && p.HTTPS == "" {
		return nil
	}
	text := "[Service]\n"
	for _, v := range []struct{ name, value string }{{"HTTP_PROXY", p.HTTP}, {"HTTPS_PROXY", p.HTTPS}, {"NO_PROXY", strings.Join(p.NoProxy, ",")}} {
		if v.value != "" {
			text += "Environment=" + v.name + "=" + strings.ReplaceAll(v.value, "%", "%%") + "\n"
		}
	}
	dirs := []string{agentUnits}
	if g.Roles.Has(role.Minions) {
		dirs = append(dirs, containerdUnit+".d", kubeletUnit+".d")
	}
	var files []File
	for _, dir := range dirs {
		files = append(files, File{Path: path.Join(unitDir, dir, proxyFile), Content: []byte(text)})
	}
	return files
}
