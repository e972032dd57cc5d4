package exporter

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/etcd/operate"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/controller"
)

func yes(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// The metrics of etcd.
var (
	etcdVoters    = newFamily("etcd_voters", "Members of etcd that vote, know a leader, and have reported that within three minutes.")
	etcdQuorum    = newFamily("etcd_quorum", "How many voters writes need.")
	etcdReport    = newFamily("etcd_member_report_timestamp_seconds", "When the member's machine last reported.", "member")
	etcdLeader    = newFamily("etcd_member_has_leader", "Whether the member knew a leader when it last reported.", "member")
	etcdSize      = newFamily("etcd_member_database_bytes", "The size of the member's database.", "member")
	etcdInUse     = newFamily("etcd_member_database_in_use_bytes", "What of the member's database is not free.", "member")
	etcdQuota     = newFamily("etcd_member_quota_bytes", "The size of the database at which etcd takes no more writes.", "member")
	etcdAlarm     = newFamily("etcd_member_alarm", "An alarm of etcd that is on.", "member", "alarm")
	etcdBackup    = newFamily("etcd_backup_timestamp_seconds", "When the newest backup that a member reports was taken.")
	etcdVerified  = newFamily("etcd_backup_restored_timestamp_seconds", "When a backup was last taken back from its place and restored for a trial.")
	etcdReporting = 3 * time.Minute // as long as pkg/etcd/operate trusts a report that is written every minute
)

// Etcd is what the members' machines report to the store, so that it is known without etcd, and of members on other machines.
func Etcd(status func(context.Context) (*operate.Report, error)) Source {
	return Source{"etcd", func(ctx context.Context) ([]Metric, error) {
		r, err := status(ctx)
		if err != nil {
			return nil, err
		}
		voters := 0
		var out []Metric
		for _, m := range r.Members {
			if m.Status == nil {
				continue
			}
			if voter(m) {
				voters++
			}
			out = append(out, ofMember(m)...)
		}
		out = append(out, gauge(etcdVoters, float64(voters)), gauge(etcdQuorum, float64(r.Quorum)))
		if r.Backup != nil {
			out = append(out, gauge(etcdBackup, seconds(r.Backup.At)))
		}
		if r.Verified != nil {
			out = append(out, gauge(etcdVerified, seconds(r.Verified.Verified)))
		}
		return out, nil
	}}
}

// voter is less than healthy: a member that has a finding, as little space, still votes.
func voter(m operate.Member) bool {
	return (m.Role == operate.Leader || m.Role == operate.Voter) && m.Status.Leader != 0 && time.Duration(m.Seconds)*time.Second <= etcdReporting
}

func ofMember(m operate.Member) []Metric {
	s := m.Status
	out := []Metric{
		gauge(etcdReport, seconds(s.At), m.Name), gauge(etcdLeader, yes(s.Leader != 0), m.Name),
		gauge(etcdSize, float64(s.Store.Size), m.Name), gauge(etcdInUse, float64(s.Store.InUse), m.Name),
	}
	if s.Store.Quota > 0 {
		out = append(out, gauge(etcdQuota, float64(s.Store.Quota), m.Name))
	}
	for _, alarm := range slices.Compact(slices.Sorted(slices.Values(s.Store.Alarms))) {
		out = append(out, gauge(etcdAlarm, 1, m.Name, alarm))
	}
	return out
}

var nodeReady = newFamily("node_ready", "Whether the node's condition Ready is true.", "node")

// Nodes are the cluster's nodes, as the API server shows them.
func Nodes(list func(context.Context) ([]controller.Node, error)) Source {
	return Source{"nodes", func(ctx context.Context) ([]Metric, error) {
		nodes, err := list(ctx)
		out := make([]Metric, 0, len(nodes))
		for _, n := range nodes {
			out = append(out, gauge(nodeReady, yes(n.Ready), n.Name))
		}
		return out, err
	}}
}

var (
	dnsWritten   = newFamily("dns_record_has_master", "Whether the masters' record has an address of this master.")
	dnsAddresses = newFamily("dns_record_addresses", "How many addresses the masters' record has.")
)

// DNS is whether a name leads to this master: it does when its machine is healthy and DNS is written. A name without addresses is an
// answer; a server that does not answer is none.
func DNS(host string, lookup func(ctx context.Context, host string) ([]netip.Addr, error), self func() ([]netip.Addr, error)) Source {
	return Source{"dns", func(ctx context.Context) ([]Metric, error) {
		own, err := self()
		if err != nil {
			return nil, err
		}
		found, err := lookup(ctx, host)
		if err != nil {
			return nil, err
		}
		written := slices.ContainsFunc(found, func(a netip.Addr) bool { return slices.Contains(own, a.Unmap()) })
		return []Metric{gauge(dnsWritten, yes(written)), gauge(dnsAddresses, float64(len(found)))}, nil
	}}
}

var (
	certificateStart = newFamily("certificate_not_before_timestamp_seconds", "Since when a certificate in a file of this master is valid.", "file")
	certificateEnd   = newFamily("certificate_not_after_timestamp_seconds", "Until when a certificate in a file of this master is valid.", "file")
)

// Certificates are those of the master's daemons: the files *.crt one directory below dir in root, of which each is counted by its
// certificate that ends first. A file that cannot be read is an error of the source.
func Certificates(root fs.FS, dir string) Source {
	return Source{"certificates", func(context.Context) ([]Metric, error) {
		files, err := fs.Glob(root, path.Join(dir, "*", "*.crt"))
		if err != nil {
			return nil, err
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("no certificate is below %s", dir)
		}
		var out []Metric
		var errs []error
		for _, file := range files {
			first, err := endsFirst(root, file)
			if err != nil {
				errs = append(errs, fmt.Errorf("reading %s: %w", file, err))
				continue
			}
			out = append(out, gauge(certificateStart, seconds(first.NotBefore), "/"+file), gauge(certificateEnd, seconds(first.NotAfter), "/"+file))
		}
		return out, errors.Join(errs...)
	}}
}

func endsFirst(root fs.FS, file string) (first *x509.Certificate, err error) {
	data, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if first == nil || cert.NotAfter.Before(first.NotAfter) {
			first = cert
		}
	}
	if first == nil {
		return nil, errors.New("it has no certificate")
	}
	return first, nil
}
