package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// The add-ons that call AWS: their pods take a role with their tokens.
const (
	ClusterAutoscaler = "cluster-autoscaler"
	EBSDriver         = "aws-ebs-csi-driver"
	CloudController   = "aws-cloud-controller-manager"
)

// CloudAddons are the add-ons that call AWS.
func CloudAddons() []string { return []string{CloudController, EBSDriver, ClusterAutoscaler} }

// NeedsCloud reports whether an add-on of the list calls AWS.
func NeedsCloud(addons []string) bool {
	return slices.ContainsFunc(addons, func(name string) bool { return slices.Contains(CloudAddons(), name) })
}

// ImageVariable is the variable of manifests for the image of that name in AddonImages: csi-provisioner is ${IMAGE_CSI_PROVISIONER}.
func ImageVariable(image string) string {
	return "IMAGE_" + strings.ToUpper(strings.ReplaceAll(image, "-", "_"))
}

// roleCluster is how much of a cluster's name the name of a role has. With the longest region and add-on that makes the 64
// characters that IAM allows.
const roleCluster = 20

// PodRolePrefix is what the names of the roles of a cluster's add-ons begin with; the add-on's name follows. The masters, which
// write the pods, know no output of a stack, so that these roles have names that follow from the cluster. IAM has one space of
// names for all regions.
func PodRolePrefix(cluster, region string) string {
	if len(cluster) > roleCluster {
		sum := sha256.Sum256([]byte(cluster))
		cluster = strings.TrimRight(cluster[:roleCluster-7], "-") + "-" + hex.EncodeToString(sum[:3])
	}
	return cluster + "-" + region + "-"
}
