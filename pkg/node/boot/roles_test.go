package boot

import "testing"

// TestOwnRole gives a machine a role that a unit names: one of the image, and one that comes with the user data.
func TestOwnRole(t *testing.T) {
	const roleFile = "- {path: /etc/sysconfig/kubernetes-ingress, content: 'CLUSTER_NAME=demo'}\n"
	const unit = "[Unit]\nConditionPathExists=/etc/sysconfig/kubernetes-ingress\n[Service]\nExecStart=/bin/true\n"
	for name, given := range map[string]tree{
		"the image's": {credential: "#cloud-config\nwrite_files:\n" + roleFile, "usr/lib/systemd/system/proxy.service": unit},
		"a drop-in":   {credential: "#cloud-config\nwrite_files:\n" + roleFile, "usr/lib/systemd/system/proxy.service.d/10.conf": unit},
		"its own": {credential: "#cloud-config\nwrite_files:\n" + roleFile +
			"- {path: /etc/systemd/system/proxy.service, content: \"[Unit]\\nConditionPathExists=/etc/sysconfig/kubernetes-ingress\\n[Service]\\nExecStart=/bin/true\\n\"}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := given.make(t)
			report, err := Run(t.Context(), options(root, &service{id: "i-imds"}))
			if err != nil || report.Roles.String() != "ingress" {
				t.Fatalf("the roles are %s, %v", report.Roles, err)
			}
			if text := readTree(t, root, given)["etc/sysconfig/kubernetes-ingress"]; text != "CLUSTER_NAME=demo" {
				t.Errorf("the role file has %q", text)
			}
		})
	}
}
