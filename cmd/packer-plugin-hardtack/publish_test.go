package main_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"
	"github.com/hashicorp/packer-plugin-sdk/packer/registry/image"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/bake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/unit"
)

// standIn starts a fake account, and points the AWS SDK of this process's children at it.
func standIn(t *testing.T) *awsfake.Account {
	t.Helper()
	account := awsfake.New(awsfake.Options{Regions: []string{"us-east-1"}})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	for key, value := range map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_PROFILE": "", "XDG_STATE_HOME": t.TempDir(),
	} {
		t.Setenv(key, value)
	}
	return account
}

// bakedDisk is a disk with an image.json beside it.
func bakedDisk(t *testing.T) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "hardtack.raw")
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(256 << 20); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 10 << 20, 255 << 20} {
		if _, err := f.WriteAt([]byte(strings.Repeat("hardtack", 1000)), at); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(bake.Manifest{
		Schema: bake.ManifestSchema, Architecture: "amd64", Kubernetes: "v1.36.3", Hardtack: "0.1.0", Lock: bake.LockName{Image: "abc"}, RootHash: "5ea1ed",
		Roles: unit.Table{Roles: []unit.RoleFile{{Role: "masters"}, {Role: "ingress"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(filepath.Dir(disk), "image.json"), string(text))
	return disk
}

// TestPackerPublishes runs Packer with the template and the post-processor, and reads the manifest.
func TestPackerPublishes(t *testing.T) {
	account := standIn(t)
	packer := packerTool(t)
	disk, out := bakedDisk(t), t.TempDir()
	build := func(more ...string) (log, id string) {
		t.Helper()
		args := append([]string{"build", "-color=false", "-var", "disk=" + disk, "-var", "output=" + out}, more...)
		log, err := packer(append(args, "../../images/publish.pkr.hcl")...)
		if err != nil {
			t.Fatalf("%v\n%s", err, log)
		}
		var manifest struct {
			Builds []struct {
				Artifact string `json:"artifact_id"`
			}
		}
		if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "manifest.json"))), &manifest); err != nil {
			t.Fatal(err)
		}
		return log, manifest.Builds[len(manifest.Builds)-1].Artifact
	}
	_, first := build("-var", `copy_to=["us-east-1"]`, "-var", "channel=testing", "-var", `share_accounts=["111122223333"]`)
	here, there := account.Images().List(), account.ImagesIn("us-east-1").List()
	if len(here) != 1 || len(there) != 1 || first != "us-east-1:"+there[0].ID+",us-west-2:"+here[0].ID {
		t.Fatalf("the manifest says %s, and there are %v and %v", first, here, there)
	}
	for _, i := range []awsfake.Image{here[0], there[0]} {
		if len(i.Shared) != 1 || i.Firmware.Architecture != "x86_64" || i.Firmware.BootMode != "uefi" || i.Tags["hardtack:kubernetes"] != "v1.36.3" || i.Tags["hardtack:roles"] != "masters+ingress" {
			t.Errorf("the image is %+v", i)
		}
	}
	for _, region := range []string{"us-west-2", "us-east-1"} {
		if p, ok := account.SSMIn(region).Parameter("/hardtack/testing/image-id"); !ok || !strings.Contains(first, region+":"+p.Value) {
			t.Errorf("in %s the channel names %q", region, p.Value)
		}
	}
	// A disk of which nothing is known but its architecture.
	bare := filepath.Join(t.TempDir(), "bare.raw")
	if err := os.Link(disk, bare); err != nil {
		t.Fatal(err)
	}
	if out, err := packer("build", "-color=false", "-var", "disk="+bare, "-var", "output="+t.TempDir(), "../../images/publish.pkr.hcl"); err == nil || !strings.Contains(out, "architecture is needed: there is no image.json with "+bare) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, id := build("-var", "disk="+bare, "-var", "architecture=arm64", "-var", "image_name=bare"); id == first {
		t.Errorf("published was %s", id)
	}
	if i := slices.IndexFunc(account.Images().List(), func(i awsfake.Image) bool { return i.Tags["hardtack:image"] == "bare" }); i < 0 || account.Images().List()[i].Firmware.Architecture != "arm64" {
		t.Errorf("published were %+v", account.Images().List())
	}
	log, again := build()
	if again != "us-west-2:"+here[0].ID || !strings.Contains(log, "the image is there") {
		t.Errorf("the second build made %s\n%s", again, log)
	}
	if calls := account.Calls(); calls["ebs:StartSnapshot"] != 2 {
		t.Errorf("the calls were %v", calls)
	}
}

// The artifact over the RPC, as Packer sees it.
func TestPostProcessorOverRPC(t *testing.T) {
	account := standIn(t)
	disk := bakedDisk(t)
	client, _ := start(t, "post-processor", "ami")
	p := client.PostProcessor()
	if err := p.Configure(map[string]any{"image_name": "node", "tags": map[string]string{"team": "a"}}); err != nil {
		t.Fatal(err)
	}
	source := &packer.MockArtifact{IdValue: "digest", FilesValue: []string{disk, filepath.Join(filepath.Dir(disk), "image.json")}}
	a, keep, force, err := p.PostProcess(t.Context(), &packer.MockUi{}, source)
	if err != nil {
		t.Fatal(err)
	}
	i := account.Images().List()[0]
	if a.BuilderId() != "hardtack.ami" || a.Id() != "us-west-2:"+i.ID || !keep || force || len(a.Files()) != 0 {
		t.Errorf("the artifact is %s, %s, %v (%v, %v)", a.BuilderId(), a.Id(), a.Files(), keep, force)
	}
	if a.State("image_name") != i.Name || !strings.HasPrefix(i.Name, "node-") || a.State("snapshot_id") != i.Disks[0].Snapshot || i.Tags["team"] != "a" {
		t.Errorf("its state is %v and %v, of %+v", a.State("image_name"), a.State("snapshot_id"), i)
	}
	if registry := a.State(image.ArtifactStateURI); registry == nil {
		t.Error("the registry of HCP Packer is told nothing")
	}
	if err := a.Destroy(); err != nil {
		t.Fatal(err)
	}
	if images, snapshots := account.Images().List(), account.Images().Snapshots(); len(images)+len(snapshots) != 0 {
		t.Errorf("after Destroy there are %v and %v", images, snapshots)
	}
}

// Ctrl-C in Packer while AWS does not answer: the call returns, and nothing is left.
func TestPostProcessorCancelled(t *testing.T) {
	account := standIn(t)
	disk := bakedDisk(t)
	client, _ := start(t, "post-processor", "ami")
	p := client.PostProcessor()
	if err := p.Configure(map[string]any{"disk": disk}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	account.SetFaults(awsfake.FaultFunc(func(c awsfake.Call) awsfake.Fault {
		if c.Action == "CompleteSnapshot" {
			cancel()
			return awsfake.Fault{Delay: time.Hour}
		}
		return awsfake.Fault{}
	}))
	if _, _, _, err := p.PostProcess(ctx, &packer.MockUi{}, &packer.MockArtifact{}); err == nil {
		t.Error("a cancelled publication ended well")
	}
	if images, snapshots := account.Images().List(), account.Images().Snapshots(); len(images)+len(snapshots) != 0 {
		t.Errorf("there are %v and %v", images, snapshots)
	}
}

func TestPostProcessorReportsEverything(t *testing.T) {
	client, _ := start(t, "post-processor", "ami")
	err := client.PostProcessor().Configure(map[string]any{
		"image_name": "a b", "architecture": "vax", "kms_key": "mine", "volume_size": -1, "channel": "A", "share_accounts": []string{"1"},
		"share_organisations": []string{"o"}, "copy": []map[string]any{{"region": "nowhere"}}, "tags": map[string]string{"hardtack:x": "y"},
	})
	if err == nil {
		t.Fatal("nothing was reported")
	}
	for _, want := range []string{`image "a b"`, `architecture "vax"`, `key "mine"`, "volume of -1", `channel "A"`, `share with "1"`, `share with "o"`, `copy to "nowhere"`, `tag "hardtack:x"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the report lacks %q:\n%v", want, err)
		}
	}
	const unknown = "<unknown>"
	client, _ = start(t, "post-processor", "ami")
	if err := client.PostProcessor().Configure(map[string]any{"image_name": unknown, "kms_key": unknown, "region": unknown, "channel": unknown, "share_accounts": []string{unknown}}); err != nil {
		t.Errorf("unknown values: %v", err)
	}
}
