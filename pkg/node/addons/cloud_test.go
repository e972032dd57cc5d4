package addons_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/addons"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds"
)

// facts is a metadata service with these values.
type facts map[string]string

func (f facts) Identity(context.Context) (imds.Identity, error) {
	return imds.Identity{Region: f["region"], AccountID: f["account"]}, nil
}

func (f facts) Get(_ context.Context, path string) ([]byte, error) {
	value, ok := f[path]
	if !ok {
		return nil, fmt.Errorf("asking for %s: %w", path, imds.ErrNotFound)
	}
	return []byte(value + "\n"), nil
}

// TestCloud: the variables are those of the place where the machine is, and without one of them nothing is written.
func TestCloud(t *testing.T) {
	const card = "meta-data/network/interfaces/macs/02:00:00:00:00:01/"
	in := facts{"region": "cn-north-1", "account": "123456789012", "meta-data/services/partition": "aws-cn", "meta-data/mac": "02:00:00:00:00:01", card + "vpc-id": "vpc-1", card + "subnet-id": "subnet-1"}
	values, err := addons.Cloud(t.Context(), in, "demo", true)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"AWS_REGION": "cn-north-1", "AWS_ROLE_PREFIX": "arn:aws-cn:iam::123456789012:role/demo-cn-north-1-", "AWS_VPC": "vpc-1", "AWS_SUBNET": "subnet-1"} {
		if values[name] != want {
			t.Errorf("%s is %q, want %q", name, values[name], want)
		}
	}
	delete(in, card+"vpc-id")
	if _, err := addons.Cloud(t.Context(), in, "demo", true); !errors.Is(err, imds.ErrNotFound) || !strings.Contains(err.Error(), "take aws-cloud-controller-manager out") {
		t.Errorf("without a VPC: %v", err)
	}
	if values, err := addons.Cloud(t.Context(), in, "demo", false); err != nil || values["AWS_VPC"] != "" {
		t.Errorf("who needs none: %v, %v", values, err)
	}
	in["account"] = ""
	if _, err := addons.Cloud(t.Context(), in, "demo", false); err == nil || !strings.Contains(err.Error(), "need all three") {
		t.Errorf("without an account: %v", err)
	}
}
