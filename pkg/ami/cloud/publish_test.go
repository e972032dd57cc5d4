package cloud_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/ami"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/cloud"
	"github.com/hardtack/packer-plugin-hardtack/pkg/ami/uefivars"
	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestPublishSigned: what a signed disk's image begins with is its certificate, and a TPM. The same disk without is another image.
func TestPublishSigned(t *testing.T) {
	w := newWorld(t, awsfake.Options{})
	file := makeDisk(t, 8*mib, "one", 1)
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := pki.NewAuthority("db", key, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate := signer.Certificate.Raw
	uefi := func(r *ami.Request) { r.UEFI = true }
	without := w.publish(t, file, uefi)
	with := w.publish(t, file, uefi, func(r *ami.Request) { r.SecureBoot = certificate })
	firmware := func(image string) (f awsfake.Firmware) {
		i, _ := w.account.Images().Image(image)
		return i.Firmware
	}
	if f := firmware(without.Image); f.Variables != "" || f.TPM != "" || f.BootMode != "uefi" {
		t.Errorf("without a certificate: %+v", f)
	}
	if f := firmware(with.Image); f.Variables != uefivars.SecureBoot(certificate) || f.TPM != "v2.0" || f.BootMode != "uefi" {
		t.Errorf("with one: %+v", f)
	}
	if with.Found || with.Image == without.Image {
		t.Errorf("an image without the certificate was taken for one with it: %+v and %+v", without, with)
	}
	for what, change := range map[string]func(*ami.Request){
		"the certificate for Secure Boot: ":       func(r *ami.Request) { r.UEFI, r.SecureBoot = true, []byte("none") },
		"only what starts by UEFI alone takes it": func(r *ami.Request) { r.SecureBoot = certificate },
	} {
		if err := request(t, file, change).Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("want an error with %q: %v", what, err)
		}
	}
}

// One line of images: all of the first, what has changed of the second, nothing of the same again.
func TestLineOfImages(t *testing.T) {
	w := newWorld(t, awsfake.Options{})
	file := makeDisk(t, 64*mib+1000, "one", 0, 1, 7, 60, 128)
	first := w.publish(t, file)
	w.holds(t, first.Snapshot, file)
	if first.SentBlocks != 6 || first.DiskBlocks != 5 || first.Found || first.Parent != "" || first.Volume != 1 {
		t.Errorf("the first: %+v", first)
	}
	again := w.publish(t, file)
	if !again.Found || again.Image != first.Image || again.SentBlocks != 0 {
		t.Errorf("the same again: %+v", again)
	}
	writeBlocks(t, file, "two", 7, 30)
	writeBlocks(t, file, "", 60)
	second := w.publish(t, file)
	w.holds(t, second.Snapshot, file)
	// Two blocks of data, one that is zero now, the manifest.
	if second.SentBlocks != 4 || second.KeptBlocks != 3 || second.Parent != first.Snapshot {
		t.Errorf("the second: %+v", second)
	}
	// Back to what the first was: found, whatever came between.
	writeBlocks(t, file, "one", 7, 60)
	writeBlocks(t, file, "", 30)
	if r := w.publish(t, file); r.Image != first.Image {
		t.Errorf("the first again: %+v", r)
	}
	w.only(t, first.Image, second.Image)
	if calls := w.account.Calls(); calls["ebs:StartSnapshot"] != 2 || calls["ebs:PutSnapshotBlock"] != 10 || calls["ec2:RegisterImage"] != 2 {
		t.Errorf("the calls were %v", calls)
	}
	i, _ := w.account.Images().Image(second.Image)
	if f := i.Firmware; f.BootMode != "uefi-preferred" || f.IMDS != "v2.0" || !f.ENA || f.Architecture != "x86_64" {
		t.Errorf("the image is registered as %+v", f)
	}
	if d := i.Disks[0]; d.Type != "gp3" || d.Keep || d.Size != 1 {
		t.Errorf("its disk is %+v", d)
	}
}

// A disabled image keeps its name and its snapshot: gc leaves both and says why, nothing is sent for the same disk, here or as a copy, and
// what is to be done is said. Enabled, it is found as it was.
func TestDisabledImage(t *testing.T) {
	w := newWorld(t, twoMore())
	file := makeDisk(t, 4*mib, "x", 0)
	first, err := w.ship(t, file, func(j *ami.Pipeline) { j.Copies = []ami.Target{{Region: away}} })
	if err != nil {
		t.Fatal(err)
	}
	in := func(region string) *ec2.Client {
		return ec2.New(ec2.Options{Region: region, BaseEndpoint: &w.url, Credentials: w.credentials})
	}
	again := func(region string) {
		t.Helper()
		id := first.Images[region]
		if _, err := in(region).DisableImage(t.Context(), &ec2.DisableImageInput{ImageId: &id}); err != nil {
			t.Fatal(err)
		}
		before := w.account.Calls()
		_, err := w.ship(t, file, func(j *ami.Pipeline) { j.Copies = []ami.Target{{Region: away}} })
		for _, call := range []string{"ebs:StartSnapshot", "ec2:CopyImage", "ec2:RegisterImage"} {
			if w.account.Calls()[call] != before[call] {
				t.Errorf("%s in %s was called again", call, region)
			}
		}
		if err == nil || !strings.Contains(err.Error(), "image "+id+" ("+first.Name+") is disabled, and keeps its name: enable it") {
			t.Errorf("publishing it again: %v", err)
		}
	}
	again(home)
	c := w.client(home)
	stock, err := c.Inventory(t.Context(), "test")
	if err != nil || len(stock.Images) != 1 || stock.Images[0].State != ami.Disabled || len(stock.Orphans) > 0 {
		t.Fatalf("%+v, %v", stock, err)
	}
	verdicts := ami.Collect(stock, ami.Rules{Shared: true, Now: time.Now().Add(time.Hour)})
	if len(verdicts) != 1 || verdicts[0].Remove || !slices.Equal(verdicts[0].Why, []string{"it is disabled"}) {
		t.Errorf("%+v", verdicts)
	}
	if _, err := ami.Promote(t.Context(), c, "stable", first.Image); err == nil || !strings.HasSuffix(err.Error(), "it is disabled") {
		t.Errorf("promoting it: %v", err)
	}
	if err := c.WaitImage(t.Context(), first.Image); err == nil || !strings.HasSuffix(err.Error(), "it is disabled") {
		t.Errorf("waiting for it: %v", err)
	}
	if _, err := in(home).EnableImage(t.Context(), &ec2.EnableImageInput{ImageId: &first.Image}); err != nil {
		t.Fatal(err)
	}
	again(away)
}

// What is unfinished in an account is none of another's, whose image is published from the same computer.
func TestStateOfAnAccount(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	for _, account := range []string{"111122223333", "444455556666"} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked++; r.FormValue("Action") == "GetCallerIdentity" {
				fmt.Fprintf(w, "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>%s</Account></GetCallerIdentityResult></GetCallerIdentityResponse>", account)
			}
		}))
		t.Cleanup(server.Close)
		c, err := cloud.Open(t.Context(), home, quick, config.WithBaseEndpoint(server.URL))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.State(t.Context()); err != nil || got != filepath.Join("/state/hardtack/publish", account, home) || asked != 1 {
			t.Errorf("%q, %v, asked %d times", got, err, asked)
		}
	}
}
