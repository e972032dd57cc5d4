package spec_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// What a machine would refuse of its user data is refused of the document, with the field that says it.
func TestReadable(t *testing.T) {
	const head = "apiVersion: hardtack.dev/v1\nkind: Cluster\nname: demo\n"
	node := func(text string) string {
		return "groups:\n- {name: masters, roles: [masters, etcd]}\n- {name: minions, roles: [minions], node: {" + text + "}}\n"
	}
	const alone = "groups: [{name: all, roles: [masters, etcd]}]\n"
	long := strings.Repeat("a.", 127)
	for text, want := range map[string]string{
		node("labels: {team: platform team}"):                                                  `cluster.yaml:6: groups[1].node.labels.team: value "platform team": at most 63 letters, digits and -_. that begin and end with a letter or a digit`,
		node("labels: {team: \"\", example.org/a: b-_.c}"):                                     "",
		node("labels: {a..b/x: y}"):                                                            `cluster.yaml:6: groups[1].node.labels["a..b/x"]: key "a..b/x" is not of the form [domain/]name`,
		node("labels: {kubernetes.io/arch: amd64}"):                                            "",
		node("taints: [\"dedicated=-gpu:NoSchedule\"]"):                                        `cluster.yaml:6: groups[1].node.taints[0]: value "-gpu" of taint dedicated is not a label's value`,
		node("taints: [\"dedicated=gpu:NoSchedule\"]"):                                         "",
		"api: {names: [\"fe80::1%eth0\"]}\n":                                                   `cluster.yaml:4: api.names[0]: "fe80::1%eth0" is neither a DNS name nor an address`,
		"api: {names: [\"fe80::1\"]}\n":                                                        "",
		alone + "api: {names: [" + long + "a]}\n":                                              `cluster.yaml:4: groups[0]: its machines would refuse /etc/hardtack/machine.yaml:5: api.names[0]: "` + long + `a" is neither a DNS name nor an address`,
		"fileAssets: [{path: /etc/own, content: a}, {path: /etc/own/more.conf, content: b}]\n": "cluster.yaml:4: fileAssets[1].path: needs /etc/own as a directory, which is written as a file",
		"fileAssets: [{path: /etc/own, content: a, roles: [masters]}, {path: /etc/own/more.conf, content: b, roles: [minions]}]\n":             "",
		"fileAssets: [{path: /etc/systemd/system, content: a}]\nhooks: [{name: one, manifest: ExecStart=/bin/true}]\n":                         "cluster.yaml:5: hooks[0].name: needs /etc/systemd/system as a directory, which is written as a file",
		"additionalUserData: [{name: a, type: text/cloud-config, content: \"#cloud-config\\nwrite_files: [{path: /a, x: y}]\"}]\n":             "",
		alone + "additionalUserData: [{name: a, type: text/cloud-config, content: \"#cloud-config\\nwrite_files: [{path: a}]\"}]\n":            `cluster.yaml:4: groups[0]: its machines would refuse part 2 (a):2: write_files[0].path: must be absolute, not "a"`,
		"additionalUserData: [{name: a, type: text/cloud-config, content: \"#cloud-config\\nlaunch-index: 1\\nwrite_files: [{path: /a}]\"}]\n": "",
	} {
		var lines []string
		for _, p := range findings(t, head+text) {
			lines = append(lines, p.String())
		}
		assert.Check(t, strings.Join(lines, "\n") == want, "%s\ngot  %s\nwant %s", text, strings.Join(lines, "\n"), want)
	}
}
