package awsfake_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

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

// TestVolumesWithTheCommandLine makes and attaches a volume with AWS's own program: its waiters read the states, and its
// parser the shapes.
func TestVolumesWithTheCommandLine(t *testing.T) {
	program, err := exec.LookPath("aws")
	if err != nil {
		t.Skipf("AWS's command line is not installed: %v", err)
	}
	account := awsfake.New(awsfake.Options{EC2: awsfake.EC2Options{Volumes: awsfake.VolumeOptions{Create: 100 * time.Millisecond}}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	m, err := account.EC2().Run(awsfake.Machine{Zone: "us-west-2a"})
	if err != nil {
		t.Fatal(err)
	}
	admin := account.AddUser("admin", awsfake.Administrator())
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"ec2", "--output", "text"}, args...)...)
		cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+server.URL, "AWS_ACCESS_KEY_ID="+admin.AccessKey, "AWS_SECRET_ACCESS_KEY="+admin.Secret,
			"AWS_DEFAULT_REGION=us-west-2", "AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return strings.TrimSpace(string(out)) + ": " + err.Error()
		}
		return strings.TrimSpace(string(out))
	}
	id := run("create-volume", "--availability-zone", "us-west-2a", "--size", "20", "--volume-type", "gp3", "--iops", "3500", "--encrypted",
		"--tag-specifications", "ResourceType=volume,Tags=[{Key=EtcdMember,Value=a}]", "--query", "VolumeId")
	for _, tt := range []struct{ command, want string }{
		{"wait volume-available --volume-ids ID", ""},
		{"attach-volume --volume-id ID --instance-id MACHINE --device /dev/sdf --query State", "attaching"},
		{"wait volume-in-use --volume-ids ID", ""},
		{"describe-volumes --filters Name=tag:EtcdMember,Values=a --query Volumes[].[State,Iops,Encrypted,Attachments[0].State,Attachments[0].DeleteOnTermination]", "in-use\t3500\tTrue\tattached\tFalse"},
		{"describe-instances --query Reservations[].Instances[].BlockDeviceMappings[].[DeviceName,Ebs.VolumeId,Ebs.Status]", "/dev/sdf\tID\tattached"},
		{"detach-volume --volume-id ID --query State", "detaching"},
		{"modify-volume --volume-id ID --size 30 --query VolumeModification.[OriginalSize,TargetSize]", "20\t30"},
		{"describe-volumes-modifications --volume-ids ID --query VolumesModifications[].[ModificationState,Progress]", "completed\t100"},
	} {
		fill := strings.NewReplacer("ID", id, "MACHINE", m.ID)
		command := strings.Fields(tt.command)
		for i, arg := range command {
			command[i] = fill.Replace(arg)
		}
		if got := run(command...); got != fill.Replace(tt.want) {
			t.Errorf("aws ec2 %s: %q, want %q", tt.command, got, fill.Replace(tt.want))
		}
	}
	if got := run("delete-volume", "--volume-id", id); !strings.Contains(got, "(VolumeInUse)") || !strings.Contains(got, "is currently attached to "+m.ID) {
		t.Errorf("deleting a volume in use: %s", got)
	}
}
