package spec_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// TestTimeServers gives machines time servers where nobody else does, or where the document names them.
func TestTimeServers(t *testing.T) {
	const head = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"
	const pool = "NTP=0.debian.pool.ntp.org 1.debian.pool.ntp.org 2.debian.pool.ntp.org 3.debian.pool.ntp.org\n"
	for text, want := range map[string]string{
		"":                    "",
		"store: dir:/secrets": pool,
		"store: dir:/secrets\nnetwork: {timeServers: []}":                     "",
		"store: dir:/secrets\nnetwork: {timeServers: [clock.corp, 10.0.0.1]}": "NTP=clock.corp 10.0.0.1\n",
		"network: {timeServers: [10.0.0.1]}":                                  "NTP=10.0.0.1\n",
	} {
		c, _, err := spec.Load(readImage(t), "cluster.yaml", []byte(head+text+"\n"))
		assert.NilError(t, err, text)
		files, err := c.Files("minions", nil)
		assert.NilError(t, err, text)
		var conf, unit string
		for _, f := range files {
			switch f.Path {
			case "/etc/systemd/timesyncd.conf.d/50-hardtack-spec.conf":
				conf = string(f.Content)
			case "/etc/systemd/system/hardtack-clock.service":
				unit = string(f.Content)
			}
		}
		_, line, _ := strings.Cut(conf, "[Time]\n")
		assert.Equal(t, line, want, text)
		assert.Equal(t, unit != "", want != "", "its reader starts before the user data is there")
	}
	for text, want := range map[string]string{
		"network: {timeServers: ['a b']}": `cluster.yaml:4: network.timeServers[0]: "a b" is neither a DNS name nor an address`,
		"network: {timeServers: [10.0.0.1]}\nhooks: [{name: hardtack-clock, manifest: 'ExecStart=/bin/true'}]": "cluster.yaml:5: hooks[0].name: unit hardtack-clock.service is already at network.timeServers",
	} {
		found := findings(t, head+text+"\n")
		assert.Equal(t, len(found), 1, text)
		assert.Equal(t, found[0].String(), want)
	}
}
