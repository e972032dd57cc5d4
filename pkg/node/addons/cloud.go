package addons

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
)

// Metadata is the metadata service of the machine. It answers or says why it cannot; imds.ErrNotFound is what it does not have.
type Metadata interface {
	Identity(ctx context.Context) (imds.Identity, error)
	Get(ctx context.Context, path string) ([]byte, error)
}

// Cloud are the variables of the add-ons that call AWS: where the cluster is, and what the ARNs of their roles begin with. The network
// is only for the cloud's controllers.
func Cloud(ctx context.Context, m Metadata, cluster string, network bool) (map[string]string, error) {
	me, err := m.Identity(ctx)
	if err != nil {
		return nil, err
	}
	text := func(path string) string {
		var value []byte
		if err == nil {
			value, err = m.Get(ctx, path)
		}
		return strings.TrimSpace(string(value))
	}
	partition := text("meta-data/services/partition")
	values := map[string]string{
		"AWS_REGION":      me.Region,
		"AWS_ROLE_PREFIX": "arn:" + partition + ":iam::" + me.AccountID + ":role/" + machine.PodRolePrefix(cluster, me.Region),
		// What no other add-on names.
		"AWS_VPC": "", "AWS_SUBNET": "",
	}
	if network {
		card := "meta-data/network/interfaces/macs/" + text("meta-data/mac") + "/"
		values["AWS_VPC"], values["AWS_SUBNET"] = text(card+"vpc-id"), text(card+"subnet-id")
	}
	switch {
	case errors.Is(err, imds.ErrNotFound):
		return nil, fmt.Errorf("%w; next: take %s out of the document's addons, it is for machines in a VPC", err, machine.CloudController)
	case err != nil:
		return nil, err
	case me.AccountID == "" || me.Region == "" || partition == "":
		return nil, fmt.Errorf("the metadata service names the account %q, the region %q and the partition %q, and the add-ons' roles need all three", me.AccountID, me.Region, partition)
	}
	return values, nil
}
