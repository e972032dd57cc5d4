package identity_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/identity"
)

// TestEndpoint has each partition's endpoint, and a lab's, whose port is the scheme's own: it is in no signature.
func TestEndpoint(t *testing.T) {
	for _, tt := range []struct{ region, base, want string }{
		{"eu-central-1", "", "https://sts.eu-central-1.amazonaws.com/"},
		{"us-gov-west-1", "", "https://sts.us-gov-west-1.amazonaws.com/"},
		{"cn-north-1", "", "https://sts.cn-north-1.amazonaws.com.cn/"},
		{"us-west-2", "http://10.1.0.3:80", "http://10.1.0.3/"},
		{"us-west-2", "http://10.1.0.3:8080", "http://10.1.0.3:8080/"},
	} {
		c := aws.Config{Region: tt.region, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "c")}
		if tt.base != "" {
			c.BaseEndpoint = &tt.base
		}
		proof, err := identity.Prove(t.Context(), c, "demo", nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(proof)
		if err != nil || u.Scheme+"://"+u.Host+u.Path != tt.want {
			t.Errorf("%s: %s, %v, want %s", tt.region, proof, err, tt.want)
		}
	}
}
