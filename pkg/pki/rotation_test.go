package pki_test

import (
	"encoding/pem"
	"slices"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// TestStep writes and reads a step of a replacement; a program that knows of none reads the same certificates.
func TestStep(t *testing.T) {
	a, b := newAuthority(t, "a", now), newAuthority(t, "b", now)
	blocks := [][]byte{pki.EncodeCertificate(a.Certificate), pki.EncodeCertificate(b.Certificate)}
	for _, step := range []string{pki.StepAdded, pki.StepUsed} {
		data := pki.EncodeStep(blocks, step, now)
		got, since, err := pki.ParseStep(data)
		if err != nil || got != step || !since.Equal(now) {
			t.Errorf("%s: %s since %v, %v", step, got, since, err)
		}
		if certs, err := pki.ParseTrusted(data); err != nil || len(certs) != 2 || !pki.Same(certs[0], a.Certificate) || !pki.Same(certs[1], b.Certificate) {
			t.Errorf("%s: %d certificates, %v", step, len(certs), err)
		}
	}
	for name, data := range map[string][]byte{"no step": blocks[0], "nothing": nil} {
		if got, since, err := pki.ParseStep(data); err != nil || got != pki.StepNone || !since.IsZero() {
			t.Errorf("%s: %s since %v, %v", name, got, since, err)
		}
	}
	for _, headers := range []map[string]string{{"Step": "removed", "Since": "2026-01-02T03:04:05Z"}, {"Step": pki.StepAdded}, {"Step": pki.StepUsed, "Since": "yesterday"}} {
		data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: headers, Bytes: a.Certificate.Raw})
		if got, _, err := pki.ParseStep(data); err == nil {
			t.Errorf("%v is the step %s", headers, got)
		}
	}
}

// TestSplitPair takes a key with what follows it, and nothing that begins otherwise.
func TestSplitPair(t *testing.T) {
	crt, key := encoded(t, newAuthority(t, "a", now))
	gotKey, gotCrt, err := pki.SplitPair(append(slices.Clone(key), crt...))
	if err != nil || string(gotKey) != string(key) || string(gotCrt) != string(crt) {
		t.Errorf("%d and %d bytes, %v", len(gotKey), len(gotCrt), err)
	}
	for name, data := range map[string][]byte{"the wrong way": append(slices.Clone(crt), key...), "nothing": nil} {
		if _, _, err := pki.SplitPair(data); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// TestRotationOfEncryption: at no step does a key encrypt that another API server, one step behind, cannot read; and none
// decrypts less than was written.
func TestRotationOfEncryption(t *testing.T) {
	begin, err := pki.ParseEncryptionKeys(pki.NewEncryptionKey())
	if err != nil {
		t.Fatal(err)
	}
	added := begin.Next(now)
	used := added.Next(now.Add(time.Hour))
	end := used.Next(now.Add(2 * time.Hour))
	steps := []pki.EncryptionKeys{begin, added, used, end}
	for i, step := range steps[1:] {
		if behind := steps[i]; !slices.Contains(behind.Names(), step.Names()[0]) {
			t.Errorf("at %s a key encrypts that API servers at %s do not have", step.Step, behind.Step)
		}
	}
	if got := []string{added.Names()[0], used.Names()[1]}; !slices.Equal(got, []string{begin.Names()[0], begin.Names()[0]}) {
		t.Error("the old key is not kept while Secrets are encrypted with it")
	}
	if end.Names()[0] == begin.Names()[0] || len(end.Names()) != 1 || end.Step != pki.StepNone || !end.Since.IsZero() {
		t.Errorf("the end is %v, %s since %v", end.Names(), end.Step, end.Since)
	}
	if !added.Since.Equal(now) || !used.Since.Equal(now.Add(time.Hour)) || added.Step != pki.StepAdded || used.Step != pki.StepUsed {
		t.Errorf("%s since %v, %s since %v", added.Step, added.Since, used.Step, used.Since)
	}
}

// TestTokenOfAFastClock: a token of a machine whose clock is a little ahead is not replaced by each of the others, and one that
// would be good for longer than any is.
func TestTokenOfAFastClock(t *testing.T) {
	for ahead, want := range map[time.Duration]bool{pki.Backdate - time.Second: false, pki.Backdate: false, pki.Backdate + time.Second: true} {
		token := pki.NewToken(now.Add(ahead))
		if token.Due(now) != want || token.Expired(now) {
			t.Errorf("a token that expires at %v is due at %v: %v", token.Expires, now, !want)
		}
	}
}

// TestNoTimeOfJSON: RFC 3339 has years of four digits, and a wrong clock more of them. Such an object is not written at all, since
// nobody could read it.
func TestNoTimeOfJSON(t *testing.T) {
	late := time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	if data, err := pki.NewToken(late).Marshal(); err == nil || data != nil {
		t.Errorf("a token is written as %q, %v", data, err)
	}
	keys, err := pki.ParseEncryptionKeys(pki.NewEncryptionKey())
	if err != nil {
		t.Fatal(err)
	}
	if data, err := keys.Next(late).Marshal(); err == nil || data != nil {
		t.Errorf("keys are written as %q, %v", data, err)
	}
}
