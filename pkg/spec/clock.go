package spec

import (
	"strings"
)

// The files that give machines time servers: what systemd-timesyncd reads, and a unit that has it read that, since it starts before
// the user data is there.
const (
	clockFile = "/etc/systemd/timesyncd.conf.d/50-hardtack-spec.conf"
	clockUnit = "hardtack-clock.service"
)

const clockUnitText = `[Unit]
Description=Has systemd-timesyncd read the cluster's time servers
After=hardtack-userdata.service systemd-timesyncd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/systemctl try-restart systemd-timesyncd.service

[Install]
WantedBy=multi-user.target
`

// debianPool are the time servers of Debian's own timesyncd: the image has replaced them by AWS's, which only AWS has.
func debianPool() []string {
	return []string{"0.debian.pool.ntp.org", "1.debian.pool.ntp.org", "2.debian.pool.ntp.org", "3.debian.pool.ntp.org"}
}

// timeServers decides the time servers. Without a cloud nobody else may name one, and certificates need the right time.
func (f *completer) timeServers() {
	def, from := []string(nil), Origin{Derived, "store"}
	if !inCloud(f.out.Cluster.Store) {
		def = debianPool()
	}
	f.out.Cluster.Network.TimeServers = listOrDefault(f, "network.timeServers", f.in.Network.TimeServers, def, from)
}

// clock are the files of the cluster's time servers.
func (c *Complete) clock() []File {
	servers := c.Cluster.Network.TimeServers
	if len(servers) == 0 {
		return nil
	}
	return []File{
		{Path: clockFile, Content: []byte("# Beside those of DHCP, which come first.\n[Time]\nNTP=" + strings.Join(servers, " ") + "\n")},
		{Path: unitDir + "/" + clockUnit, Content: []byte(clockUnitText)},
	}
}
