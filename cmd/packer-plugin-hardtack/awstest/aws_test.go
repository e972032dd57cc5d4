package awstest

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake/moto"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/version"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake/baketest"
)

func TestAWS(t *testing.T) {
	if os.Getenv("HARDTACK_E2E") == "" {
		t.Skip("builds Packer and two plugins and needs root: make e2e runs it (HARDTACK_E2E=1)")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for the change of root that stands for the instance: run make e2e as root")
	}
	moto.Find(t) // before steps that take minutes
	tools := buildTools(t)
	base := debianBase(t)
	lock := makeFixture(t)

	start := func(t *testing.T) (*cloud, *machine) {
		t.Helper()
		m := startMachine(t, base)
		return startCloud(t, m.authorize), m
	}
	t.Run("validate", func(t *testing.T) {
		// As the template's first lines say, and without credentials or a network; then with what the lock says.
		for _, flags := range [][]string{nil, {"-evaluate-datasources"}, {"-var", "architecture=arm64"}} {
			cmd := exec.CommandContext(t.Context(), tools.packer, append(append([]string{"validate"}, flags...), template)...)
			cmd.Dir, cmd.Env = top, append(tools.env(), "AWS_ENDPOINT_URL=http://127.0.0.1:1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("packer validate %s: %v\n%s", flags, err, out)
			}
		}
	})
	t.Run("bake", func(t *testing.T) {
		c, m := start(t)
		testBake(t, tools, lock, c, m)
	})
	t.Run("wrong digest", func(t *testing.T) {
		c, m := start(t)
		testWrongDigest(t, tools, lock, c, m)
	})
	t.Run("interrupted", func(t *testing.T) {
		c, m := start(t)
		testInterrupted(t, tools, lock, c, m)
	})
}

// imageName is the name that the template gives an image: the small lock is a file of the name of the real one.
var imageName = regexp.MustCompile(`^hardtack-[0-9A-Za-z._-]+-amd64-[0-9]{8}T[0-9]{6}Z$`)

// testBake follows one build from the first request to the image, and then asks for an image of the same name again.
func testBake(t *testing.T, tools tools, f fixture, c *cloud, m *machine) {
	t.Helper()
	output := t.TempDir()
	started := time.Now()
	if out, err := tools.build(t, f.lock, f.mirror, output, c, m).CombinedOutput(); err != nil {
		t.Fatalf("packer build: %v\n%s", err, out)
	}
	t.Logf("packer build took %v", time.Since(started).Round(100*time.Millisecond))

	images := c.ownImages(t)
	if len(images) != 1 || !imageName.MatchString(images[0].Name) {
		t.Fatalf("images %+v: want one of a name like %s", images, imageName)
	}
	name := images[0].Name
	want := map[string]string{
		"Name":                name,
		ami.TagImage:          "hardtack", // by which image list, gc and promote know it
		"hardtack:kubernetes": f.kubernetes,
		"hardtack:bake":       f.fingerprint,
		"hardtack:version":    version.String(),
		"HardtackLock":        "kubernetes-1.36",
		"HardtackSource":      "release",
		"BaseImage":           debianAMI,
	}
	if diff := cmp.Diff(want, images[0].tags()); diff != "" {
		t.Errorf("tags of the image (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, c.snapshot(t, images[0].snapshot()).tags()); diff != "" {
		t.Errorf("tags of its snapshot (-want +got):\n%s", diff)
	}
	checkRequests(t, c, name)
	checkMachine(t, m, output)
	c.expectNothingLeft(t)

	again := tools.build(t, f.lock, f.mirror, t.TempDir(), c, m)
	again.Args = append(again.Args[:len(again.Args)-1], "-var", "image_name="+name, template)
	out, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(out), images[0].ID) {
		t.Errorf("a second build of this name: %v: want an error that names %s\n%s", err, images[0].ID, out)
	}
	c.expectNothingLeft(t)
}

// checkRequests checks values that moto does not keep, in the requests.
func checkRequests(t *testing.T, c *cloud, name string) {
	t.Helper()
	run := c.only(t, "RunInstances")
	for key, want := range map[string]string{
		"ImageId":                                      debianID,
		"InstanceType":                                 "c7i.large",
		"InstanceInitiatedShutdownBehavior":            "terminate",
		"MetadataOptions.HttpEndpoint":                 "enabled",
		"MetadataOptions.HttpTokens":                   "required",
		"MetadataOptions.HttpPutResponseHopLimit":      "1",
		"BlockDeviceMapping.1.DeviceName":              "/dev/xvda",
		"BlockDeviceMapping.1.Ebs.Encrypted":           "true",
		"BlockDeviceMapping.1.Ebs.VolumeType":          "gp3",
		"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
	} {
		if got := run.Get(key); got != want {
			t.Errorf("RunInstances has %s = %q, want %q", key, got, want)
		}
	}
	if script, err := base64.StdEncoding.DecodeString(run.Get("UserData")); err != nil || !strings.Contains(string(script), "shutdown -P +180") {
		t.Errorf("user data %q (%v): want a builder that ends itself", script, err)
	}
	if got := c.only(t, "CreateImage").Get("Name"); got != name {
		t.Errorf("CreateImage has Name = %q, want %q", got, name)
	}
	imds := false
	for _, r := range c.requests("ModifyImageAttribute") {
		imds = imds || r.Get("ImdsSupport.Value") == "v2.0"
	}
	if !imds {
		t.Error("no ModifyImageAttribute asks for IMDSv2 on machines of the image")
	}
	if n := len(c.requests("DeregisterImage")); n != 0 {
		t.Errorf("%d images were deregistered", n)
	}
}

// checkMachine checks the bake's files on the instance and its results.
func checkMachine(t *testing.T, m *machine, output string) {
	t.Helper()
	sums := exec.CommandContext(t.Context(), "chroot", m.root, "sh", "-c", "cd / && sha256sum --check --strict --quiet /usr/lib/hardtack/SHA256SUMS")
	if out, err := sums.CombinedOutput(); err != nil {
		t.Errorf("digests in the image: %v\n%s", err, out)
	}
	manifest := readFile(t, filepath.Join(m.root, "usr/lib/hardtack/image.json"))
	if got := readFile(t, filepath.Join(output, "image.json")); got != manifest {
		t.Error("the manifest that was brought back is not the image's")
	}
	if got := readFile(t, filepath.Join(m.root, "usr/bin/kubelet")); got != string(baketest.Program("kubernetes", "kubelet")) {
		t.Errorf("/usr/bin/kubelet is %q", got)
	}
	if got := readFile(t, filepath.Join(m.root, authorizedKeys)); strings.Contains(got, "ssh-") {
		t.Errorf("the builder's key is still in the image: %s", got)
	}
	if got := readFile(t, filepath.Join(output, "artifacts.json")); !strings.Contains(got, "ami-") {
		t.Errorf("artifacts.json names no image: %s", got)
	}
}

// testWrongDigest puts another kubelet into the mirror than the lock's: there is no image, and no
// builder either.
func testWrongDigest(t *testing.T, tools tools, f fixture, c *cloud, m *machine) {
	t.Helper()
	mirror := t.TempDir()
	if err := os.CopyFS(mirror, os.DirFS(f.mirror)); err != nil {
		t.Fatal(err)
	}
	kubelet := baketest.Program("kubernetes", "kubelet")
	// Of the same size, so that only the digest tells.
	writeFile(t, filepath.Join(mirror, baketest.Host+"/kubernetes/kubelet"), string(bytes.ToUpper(kubelet)))
	out, err := tools.build(t, f.lock, mirror, t.TempDir(), c, m).CombinedOutput()
	if err == nil {
		t.Errorf("a build with a wrong digest ended with 0")
	}
	for _, want := range []string{
		baketest.Host + "/kubernetes/kubelet",
		fmt.Sprintf("%x", sha256.Sum256(kubelet)), fmt.Sprintf("%x", sha256.Sum256(bytes.ToUpper(kubelet))),
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the error does not name %s:\n%s", want, out)
		}
	}
	c.expectNothingLeft(t)
	if images := c.ownImages(t); len(images) != 0 {
		t.Errorf("a failed build left images: %+v", images)
	}
}

// testInterrupted presses Ctrl-C while the provisioner waits for a download, so that everything a
// build makes exists at that time.
func testInterrupted(t *testing.T, tools tools, f fixture, c *cloud, m *machine) {
	t.Helper()
	mirror := newStuckMirror(t, f.mirror)
	output := t.TempDir()
	build := tools.build(t, f.lock, mirror.url, output, c, m)
	// As in a terminal, where Ctrl-C reaches Packer and its plugins alike.
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := filepath.Join(output, "log")
	build.Stdout = create(t, log)
	build.Stderr = build.Stdout
	if err := build.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- build.Wait() }()
	select {
	case <-mirror.asked:
	case err := <-ended:
		t.Fatalf("packer ended before it asked the mirror: %v\n%s", err, readFile(t, log))
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing was asked of the mirror\n%s", readFile(t, log))
	}
	c.expectBuilder(t)

	pressed := time.Now()
	if err := syscall.Kill(-build.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("an interrupted build ended with 0")
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("packer is still there 2 minutes after Ctrl-C\n%s", readFile(t, log))
	}
	t.Logf("ended %v after Ctrl-C", time.Since(pressed).Round(100*time.Millisecond))
	c.expectNothingLeft(t)
	if images := c.ownImages(t); len(images) != 0 {
		t.Errorf("an interrupted build left images: %+v", images)
	}
	if t.Failed() {
		t.Logf("packer said:\n%s", readFile(t, log))
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
