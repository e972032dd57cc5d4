package awsuser_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsuser"
)

func TestLoad(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	if _, err := awsuser.Load(t.Context(), ""); !errors.Is(err, awsuser.ErrNoRegion) {
		t.Errorf("without a region: %v", err)
	}
	// A computer that is asked for its own region may have no such service, or one that refuses.
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	if _, err := awsuser.Load(t.Context(), "", config.WithEC2IMDSRegion()); !errors.Is(err, awsuser.ErrNoRegion) {
		t.Errorf("without a region of its own: %v", err)
	}
	t.Setenv("AWS_REGION", "eu-central-1")
	for given, want := range map[string]string{"": "eu-central-1", "us-east-1": "us-east-1"} {
		conf, err := awsuser.Load(t.Context(), given)
		if err != nil || conf.Region != want || conf.HTTPClient == nil {
			t.Errorf("%q: %q, %v", given, conf.Region, err)
		}
	}
}
