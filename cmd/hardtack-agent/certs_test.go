package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/kubelet"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine/machinetest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/authority"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/store"
	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// region is an account with the store of one cluster, and an instance role for each role.
type region struct {
	url     string
	account *awsfake.Account
	store   *store.SSM
}

func newRegion(t *testing.T) *region {
	t.Helper()
	r := &region{account: awsfake.New(awsfake.Options{Rates: map[string]float64{"ssm": 0, "ssm:PutParameter": 0}})}
	operator := r.account.AddUser("operator", awsfake.Administrator())
	server := httptest.NewServer(r.account.Handler())
	t.Cleanup(server.Close)
	r.url = server.URL
	location := store.Location{Kind: store.KindSSM, Root: "/hardtack/demo"}
	r.store = store.NewSSM(location.Root, func(context.Context) (aws.Config, error) {
		return aws.Config{Region: "us-west-2", BaseEndpoint: aws.String(r.url),
			Credentials: credentials.NewStaticCredentialsProvider(operator.AccessKey, operator.Secret, "")}, nil
	})
	if _, err := authority.Create(t.Context(), r.store, machinetest.Info("demo"), time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, each := range role.All() {
		document, err := store.Policy(location, pki.AccessOf(each), "")
		if err != nil {
			t.Fatal(err)
		}
		policy, err := awsfake.ParsePolicy(document)
		if err != nil {
			t.Fatal(err)
		}
		r.account.AddRole("demo-"+string(each), policy)
	}
	return r
}

// machine is a root directory as user data leaves it, with the role files of roles.
func (r *region) machine(t *testing.T, roles ...role.Role) string {
	t.Helper()
	files := map[string]string{
		"sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
		// In a lab the unit's ImportCredential= gets it.
		"credentials/hardtack.aws-endpoint": r.url + "\n",
	}
	for _, each := range roles {
		files[each.File()] = "CLUSTER_NAME=demo\n"
	}
	return imagestest.Root(t, files)
}

// run runs the program on a machine whose instance has the instance role of a role.
func (r *region) run(t *testing.T, root string, instance role.Role, args ...string) (string, error) {
	t.Helper()
	c, err := r.account.Issue("demo-"+string(instance), "i-0123456789abcdef0", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, append(args, "--root="+root, "--patience=1ns")...)
	cmd.Env = []string{"HOME=" + root, "CREDENTIALS_DIRECTORY=" + filepath.Join(root, "credentials"), "AWS_REGION=us-west-2",
		"AWS_ACCESS_KEY_ID=" + c.AccessKey, "AWS_SECRET_ACCESS_KEY=" + c.Secret, "AWS_SESSION_TOKEN=" + c.Token}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// failure parses the failure's line in a run's output.
func failure(t *testing.T, out string) reason.Failure {
	t.Helper()
	for line := range strings.Lines(out) {
		if f, ok := reason.Parse(line); ok {
			return f
		}
	}
	t.Fatalf("no line for programs in\n%s", out)
	return reason.Failure{}
}

// keysBelow lists the private keys, and whatever else came from the store, below a machine's root.
func keysBelow(t *testing.T, root string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), "PRIVATE KEY") || strings.Contains(string(data), "secretbox") {
			found = append(found, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestRoleFileIsNoAuthorization gives machines of each group the role files of the others: the store asks who the
// instance is, and a machine that takes a role gets no key of it.
func TestRoleFileIsNoAuthorization(t *testing.T) {
	r := newRegion(t)
	for _, instance := range role.All() {
		for _, faked := range []role.Role{role.Masters, role.Etcd} {
			t.Run(fmt.Sprintf("%s as %s", instance, faked), func(t *testing.T) {
				root := r.machine(t, role.All()...)
				out, err := r.run(t, root, instance, "certs", "--role="+string(faked))
				if instance == faked {
					if err != nil || len(keysBelow(t, root)) == 0 {
						t.Errorf("its own role: %v\n%s", err, out)
					}
					return
				}
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("it went well: %v\n%s", err, out)
				}
				if f := failure(t, out); f.Reason != reason.Permission || !strings.Contains(f.Cause, "AccessDenied") {
					t.Errorf("%+v", f)
				}
				if keys := keysBelow(t, root); len(keys) > 0 {
					t.Errorf("the machine has %v", keys)
				}
			})
		}
	}
}

// TestMinionFromParameterStore waits without a token and without an API server, and says so.
func TestMinionFromParameterStore(t *testing.T) {
	r := newRegion(t)
	root := r.machine(t, role.Minions)
	out, err := r.run(t, root, role.Minions, "bootstrap")
	if f := failure(t, out); err == nil || f.Reason != reason.File || !strings.Contains(f.Cause, "no name yet") {
		t.Errorf("without a name: %v %+v", err, f)
	}
	imagestest.Write(t, root, map[string]string{kubelet.EnvFile: "NODE_NAME=node-a\n"})
	out, err = r.run(t, root, role.Minions, "bootstrap")
	if f := failure(t, out); err == nil || f.Reason != reason.DNS || f.Next == "" {
		t.Errorf("without a token, which masters make, and so without masters: %v %+v", err, f)
	}
	if out, err := r.run(t, root, role.Minions, "renew"); err != nil || !strings.Contains(out, "no certificate yet") {
		t.Errorf("renewal without a token: %v\n%s", err, out)
	}
	r.publish(t)
	out, err = r.run(t, root, role.Minions, "bootstrap")
	if f := failure(t, out); err == nil || f.Reason != reason.DNS || !strings.Contains(f.Cause, "masters.demo.k8s") {
		t.Errorf("without masters: %v %+v", err, f)
	}
	if keys := keysBelow(t, root); len(keys) > 0 {
		t.Errorf("a minion that has not joined has keys: %v", keys)
	}
}

// publish makes a token, as a master's controller does.
func (r *region) publish(t *testing.T) {
	t.Helper()
	data, err := pki.NewToken(time.Now()).Marshal()
	if err == nil {
		err = r.store.Put(t.Context(), pki.BootstrapToken, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoreOutOfReach expects the endpoint and the next step in the failure of an unreachable store.
func TestStoreOutOfReach(t *testing.T) {
	r := newRegion(t)
	root := r.machine(t, role.Masters)
	if err := os.WriteFile(filepath.Join(root, "credentials", "hardtack.aws-endpoint"), []byte("http://127.0.0.1:1"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := r.run(t, root, role.Masters, "certs")
	if f := failure(t, out); err == nil || f.Reason != reason.Store || !strings.Contains(f.Cause, "127.0.0.1:1") {
		t.Errorf("%v %+v", err, f)
	}
}
