package awsfake_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
)

// TestAWSCommandLine makes one call with AWS's own program, as a user of the lab would.
func TestAWSCommandLine(t *testing.T) {
	program, err := exec.LookPath("aws")
	if err != nil {
		t.Skipf("AWS's command line is not installed: %v", err)
	}
	account := awsfake.New(awsfake.Options{Rates: unlimited})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	createZone(t, client(server.URL, "K", 1), "demo.k8s")
	admin := account.AddUser("admin", awsfake.Administrator())
	run := func(secret string) (out []byte, message string, err error) {
		cmd := exec.CommandContext(t.Context(), program, "route53", "list-hosted-zones-by-name", "--dns-name", "demo.k8s", "--output", "json")
		cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+server.URL, "AWS_ACCESS_KEY_ID="+admin.AccessKey, "AWS_SECRET_ACCESS_KEY="+secret,
			"AWS_DEFAULT_REGION=eu-central-1", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err = cmd.Output()
		return out, stderr.String(), err
	}
	// Its signatures are made by a program that is not the one that checks them.
	out, message, err := run(admin.Secret)
	if err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	if _, message, err := run("guess"); err == nil || !strings.Contains(message, "SignatureDoesNotMatch") {
		t.Errorf("with a wrong secret: %v: %s", err, message)
	}
	var got struct {
		HostedZones []struct{ Name string }
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}
	if len(got.HostedZones) != 1 || got.HostedZones[0].Name != "demo.k8s." {
		t.Errorf("aws route53 list-hosted-zones-by-name says\n%s", out)
	}
}
