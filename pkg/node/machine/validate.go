package machine

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem/yamlfile"
)

// The ways in which a node gets its name.
const (
	NamingIPName     = "ip-name"
	NamingInstanceID = "instance-id"
	NamingHostname   = "hostname"
)

// The bounds of an MTU: what every IPv4 host must take (RFC 791), and the largest an interface has.
const (
	minMTU = 576
	maxMTU = 65535
)

// form is what a value must look like. Lengths stand beside the expressions: a counted repetition makes a large
// program. It is compiled at its first use, since a boot starts a dozen programs that have these tables.
type form struct {
	longest int
	pattern func() *regexp.Regexp
}

func newForm(longest int, pattern string) form {
	return form{longest, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

func (f form) MatchString(s string) bool { return len(s) <= f.longest && f.pattern().MatchString(s) }

var (
	labelForm  = newForm(63, `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	domainForm = newForm(253, `^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)
	// AutoScaling's names: printable ASCII without a colon (CreateAutoScalingGroup), and here without
	// blanks; hooks' names are letters, digits and -_/ (PutLifecycleHook).
	groupForm = newForm(255, `^[!-9;-~]+$`)
	hookForm  = newForm(255, `^[A-Za-z0-9_/-]+$`)
	hashForm  = newForm(128, `^[A-Za-z0-9:+/=._-]+$`)
	diskForm  = newForm(255, `^[A-Za-z0-9#+_.:=@-]+$`)
	// imageForm is a reference with its registry, and a tag, a digest or both ("Docker registry HTTP API V2", Grammar).
	imageForm = newForm(512, `^[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]+)?$`)
	ssmForm   = newForm(1011, `^(/[A-Za-z0-9_.-]+)+$`)
)

// IsLabel reports whether a name is a DNS label, as a cluster's and an etcd member's must be.
func IsLabel(name string) bool { return labelForm.MatchString(name) }

// digestMark begins the digest of an image's reference, which has 64 digits more.
const (
	digestMark   = "@sha256:"
	digestDigits = 64
)

// IsImage reports whether a text is an image's reference with its registry, and with a tag or a digest.
func IsImage(text string) bool {
	name, digest, pinned := strings.Cut(text, digestMark)
	return imageForm.MatchString(text) && (pinned && len(digest) == digestDigits || !pinned && strings.Contains(name[strings.LastIndex(name, "/")+1:], ":"))
}

// IsPinned reports whether an image's reference has a digest: a tag may be another image tomorrow.
func IsPinned(image string) bool { return strings.Contains(image, digestMark) }

// IsStore reports whether a text names a store.
func IsStore(text string) bool {
	kind, place, _ := strings.Cut(text, ":")
	return kind == "ssm" && ssmForm.MatchString(place) || kind == "dir" && path.IsAbs(place) && path.Clean(place) == place
}

// validator collects findings; lines maps a field path to its line, and refused holds the lines that
// have a finding of the decoder.
type validator struct {
	file     string
	lines    map[string]int
	refused  map[int]bool
	problems *problem.List
}

// errorf adds a finding about field; where the field is missing, the line is that of the nearest
// parent that is there.
func (v validator) errorf(field, hint, format string, args ...any) {
	line, parent := v.lines[field], field
	for line == 0 && parent != "" {
		parent = parent[:max(0, strings.LastIndexAny(parent, ".["))]
		line = v.lines[parent]
	}
	if v.refused[line] {
		return
	}
	v.problems.Add(problem.Problem{File: v.file, Line: line, Field: field, Rule: "machine", Text: fmt.Sprintf(format, args...), Hint: hint})
}

// form reports a value that does not match. One that is not said is none.
func (v validator) form(field, value string, form form, what string) {
	if value != "" && !form.MatchString(value) {
		v.errorf(field, "", "%q is not %s", value, what)
	}
}

// required reports a value that is missing.
func (v validator) required(field, value string) {
	if value == "" {
		v.errorf(field, "", "is missing")
	}
}

func (v validator) header(version, kind, want string) {
	if version != APIVersion || kind != want {
		v.errorf("apiVersion", "", "apiVersion %q and kind %q: this program reads %q and %q", version, kind, APIVersion, want)
	}
}

func (v validator) config(c Config) {
	v.header(c.APIVersion, c.Kind, Kind)
	v.form("cluster", c.Cluster, labelForm, "a DNS label")
	v.form("group", c.Group, groupForm, "the name of an AutoScaling group")
	v.form("configHash", c.ConfigHash, hashForm, "a digest")
	v.form("launchHook", c.LaunchHook, hookForm, "the name of a lifecycle hook")
	v.store(c.Store)
	if c.CAFile != "" && (!path.IsAbs(c.CAFile) || path.Clean(c.CAFile) != c.CAFile) {
		v.errorf("caFile", "", "%q is not an absolute path", c.CAFile)
	}
	if c.API.Port != 0 {
		v.port("api.port", c.API.Port)
	}
	for i, name := range c.API.Names {
		if net.ParseIP(name) == nil && !domainForm.MatchString(name) {
			v.errorf(yamlfile.At("api.names", i), "", "%q is neither a DNS name nor an address", name)
		}
	}
	for i, name := range c.Addons {
		v.form(yamlfile.At("addons", i), name, labelForm, "a DNS label")
	}
	for _, name := range slices.Sorted(maps.Keys(c.AddonImages)) {
		v.form("addonImages", name, labelForm, "a DNS label")
		if !IsImage(c.AddonImages[name]) {
			v.errorf("addonImages."+name, "", "%q is not an image's reference with its registry, and a tag or a digest", c.AddonImages[name])
		}
	}
	v.etcd(c.Etcd)
	v.network(c.Network)
	v.node(c.Node)
}

func (v validator) store(store string) {
	if store != "" && !IsStore(store) {
		v.errorf("store", "", `%q is neither "ssm:/path" nor "dir:/path"`, store)
	}
}

func (v validator) port(field string, port int) {
	if port < 1 || port > 65535 {
		v.errorf(field, "", "%d is not a port", port)
	}
}

func (v validator) etcd(e Etcd) {
	first := map[string]int{}
	for i, m := range e.Members {
		v.form(yamlfile.At("etcd.members", i), m, labelForm, "a DNS label")
		if j, again := first[m]; again {
			v.errorf(yamlfile.At("etcd.members", i), "", "%q is already at %s", m, yamlfile.At("etcd.members", j))
		}
		first[m] = i
	}
	v.form("etcd.member", e.Member, labelForm, "a DNS label")
	if e.Member != "" && len(e.Members) > 0 && !slices.Contains(e.Members, e.Member) {
		v.errorf("etcd.member", "", "%q is not among etcd.members", e.Member)
	}
	if e.Storage != "" && !slices.Contains(Storages(), e.Storage) {
		v.errorf("etcd.storage", "", "%q is not one of %s", e.Storage, strings.Join(Storages(), ", "))
	}
	switch {
	case e.Disk != "" && !IsDisk(e.Disk):
		v.errorf("etcd.disk", "", "%q is not a path below %s", e.Disk, diskDir)
	case (e.Disk != "") != (e.Storage == StorageDisk):
		v.errorf("etcd.disk", "", "goes with the storage %s, and that with it", StorageDisk)
	}
	if e.Backup != "" {
		if _, err := LocateBackups("", e.Backup); err != nil {
			v.errorf("etcd.backup", "", "%v", err)
		}
	}
	if n := e.BackupEvery; n != 0 && (n < LeastBackupMinutes || n > MostBackupMinutes) {
		v.errorf("etcd.backupEvery", "", "%d is not between %d and %d minutes", n, LeastBackupMinutes, MostBackupMinutes)
	}
}

// Storages are the values of Etcd.Storage.
func Storages() []string { return []string{StorageVolume, StorageDisk, StorageMachine} }

// diskDir has the names of disks that follow from their makers' serial numbers (udev).
const diskDir = "/dev/disk/by-id"

// IsDisk reports whether a text is a name of a disk that does not depend on the order in which disks are found.
func IsDisk(text string) bool {
	return path.Dir(text) == diskDir && diskForm.MatchString(path.Base(text))
}

func (v validator) network(n Network) {
	service, serviceOK := v.prefix("network.serviceCIDR", n.ServiceCIDR)
	pods, podsOK := v.prefix("network.podCIDR", n.PodCIDR)
	if serviceOK && podsOK && service.Overlaps(pods) {
		v.errorf("network.podCIDR", "", "%s overlaps network.serviceCIDR %s", pods, service)
	}
	switch dns, err := netip.ParseAddr(n.DNSAddress); {
	case n.DNSAddress == "":
	case err != nil:
		v.errorf("network.dnsAddress", "", "%q is not an address", n.DNSAddress)
	case serviceOK && !service.Contains(dns):
		v.errorf("network.dnsAddress", "", "%s is not in network.serviceCIDR %s", dns, service)
	}
	v.form("network.dnsDomain", n.DNSDomain, domainForm, "a DNS name without a dot at its end")
	if n.MTU != 0 && (n.MTU < minMTU || n.MTU > maxMTU) {
		v.errorf("network.mtu", "0 or nothing: the interface's less VXLAN's 50", "%d is not between %d and %d bytes", n.MTU, minMTU, maxMTU)
	}
}

func (v validator) prefix(field, value string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(value)
	switch {
	case value == "":
	case err != nil:
		v.errorf(field, "", "%q is not a range of addresses in CIDR notation", value)
	case p.Masked() != p:
		v.errorf(field, "write "+p.Masked().String(), "%s has bits set beyond its prefix", value)
	default:
		return p, true
	}
	return netip.Prefix{}, false
}

func (v validator) node(n Node) {
	switch n.Naming {
	case "", NamingIPName, NamingInstanceID, NamingHostname:
	default:
		v.errorf("node.naming", "", "%q is not %s, %s or %s", n.Naming, NamingIPName, NamingInstanceID, NamingHostname)
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		if hint, err := CheckLabel(key, n.Labels[key]); err != nil {
			v.errorf("node.labels."+key, hint, "%v", err)
		}
	}
	for i, text := range n.Taints {
		if _, err := ParseTaint(text); err != nil {
			v.errorf(yamlfile.At("node.taints", i), "", "%v", err)
		}
	}
	if n.MaxPods < 0 {
		v.errorf("node.maxPods", "", "%d is less than none", n.MaxPods)
	}
}
