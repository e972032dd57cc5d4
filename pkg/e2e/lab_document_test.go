package e2e

import "testing"

// TestLabDocuments checks, without a machine, that the labs' documents are valid and that their user data has the
// stated size.
func TestLabDocuments(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{"cluster": labCluster, "etcd": etcdCluster, "compare": compareCluster, "faults": faultsCluster(), "rotation": rotationCluster} {
		complete := completed(t, document)
		for _, g := range complete.Groups {
			data, err := complete.UserData(g.Name, []byte("-----BEGIN CERTIFICATE-----\nMIIBAA==\n-----END CERTIFICATE-----\n"))
			if err != nil {
				t.Errorf("%s: group %s: %v", name, g.Name, err)
			}
			if full := name == "faults" && g.Name != "masters"; full != (len(data) > 15<<10) {
				t.Errorf("%s: the user data of group %s has %d bytes", name, g.Name, len(data))
			}
		}
	}
}
