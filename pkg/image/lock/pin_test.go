package lock

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readGood(t *testing.T) (*Lock, []byte) {
	t.Helper()
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, problems := Parse("good.yaml", data)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return l, data
}

func TestWithPins(t *testing.T) {
	l, data := readGood(t)
	kubernetes, cni := l.Components[0], l.Components[1]
	program := Pin{Component: kubernetes.Name, File: kubernetes.Files[0].Name, Version: kubernetes.Version, Arch: "amd64", Go: "go1.26.8",
		Source: "00c0ffee0000", Digest: "sha256:" + strings.Repeat("a", 64)}
	inC := program
	inC.Go, inC.C, inC.Digest = "", "0123456789ab", "sha256:"+strings.Repeat("c", 64)
	member := Pin{Component: cni.Name, File: cni.Files[0].Name, Archive: cni.Release["amd64"][0].Digest, Digest: "sha256:" + strings.Repeat("b", 64)}
	text, err := WithPins("good.yaml", data, []Pin{member, program, inC})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(text), strings.TrimRight(string(data), "\n")+"\n\n"+PinsHeading+"\npins:\n") {
		t.Errorf("something else changed:\n%s", text)
	}
	pinned, problems := Parse("good.yaml", text)
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Pin{inC, program, member}, pinned.Pins); diff != "" {
		t.Error(diff)
	}
	if pinned.Fingerprint() != l.Fingerprint() {
		t.Error("pins change no byte of an image, and change the fingerprint")
	}
	asked := program
	asked.Digest = ""
	if got := pinned.Components[0].PinOf(asked); got != program.Digest {
		t.Errorf("the pin is %q", got)
	}
	for name, change := range map[string]func(*Pin){
		"version": func(p *Pin) { p.Version = "v9.9.9" }, "architecture": func(p *Pin) { p.Arch = "arm64" },
		"Go": func(p *Pin) { p.Go = "go1.26.9" }, "C": func(p *Pin) { p.C = "c" }, "source": func(p *Pin) { p.Source = "0" }, "file": func(p *Pin) { p.File = "x" },
	} {
		other := asked
		change(&other)
		if got := pinned.Components[0].PinOf(other); got != "" {
			t.Errorf("another %s has the pin %s", name, got)
		}
		if found := pinned.Components[0].Unpinned([]Pin{program, other}); len(found) != 1 || found[0] != other {
			t.Errorf("another %s: not pinned are %v", name, found)
		}
	}

	// Again with a new digest: it replaces the old one. With another version the old pins go.
	program.Digest = "sha256:" + strings.Repeat("d", 64)
	again, err := WithPins("good.yaml", text, []Pin{program})
	if want := strings.Replace(string(text), strings.Repeat("a", 64), strings.Repeat("d", 64), 1); err != nil || string(again) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(again)))
	}
	program.Source = "000bad000000"
	again, err = WithPins("good.yaml", text, []Pin{program})
	if err != nil || strings.Count(string(again), program.Go) != 1 || !strings.Contains(string(again), program.Source) {
		t.Errorf("with another source: %v\n%s", err, again)
	}
	raised := strings.Replace(string(text), "version: "+kubernetes.Version, "version: v1.36.99", 1)
	if _, problems := Parse("good.yaml", []byte(raised)); problems.Err() != nil {
		t.Errorf("raising a version makes pins of the old one an error: %v", problems.Err())
	}
	left, err := WithPins("good.yaml", []byte(raised), nil)
	if err != nil || strings.Contains(string(left), program.Go) || !strings.Contains(string(left), member.Digest) {
		t.Errorf("%v\n%s", err, left)
	}
}

func TestPinProblems(t *testing.T) {
	_, data := readGood(t)
	const digest = `"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"`
	for pins, want := range map[string]string{
		"- {component: none, file: kubelet, archive: x, digest: " + digest + "}":                          `"none" is no component`,
		"- {component: kubernetes, file: none, archive: x, digest: " + digest + "}":                       `"none" is not the name of a file`,
		"- {component: kubernetes, file: kubelet, digest: " + digest + "}":                                "needs either archive, or version",
		"- {component: kubernetes, file: kubelet, archive: x, go: y, digest: " + digest + "}":             "needs either archive, or version",
		"- {component: kubernetes, file: kubelet, version: v1, arch: amd64, digest: " + digest + "}":      "needs version, arch, and go or c",
		"- {component: kubernetes, file: kubelet, archive: x, digest: sha256:1}":                          "is not sha256:",
		strings.Repeat("- {component: kubernetes, file: kubelet, archive: x, digest: "+digest+"}\n  ", 2): "is of the same as pins[0]",
		"- {component: kubernetes, file: kubelet, archive: x, digest: " + digest + ", colour: red}":       "colour",
	} {
		if _, problems := Parse("x.yaml", append(data, "\npins:\n  "+pins+"\n"...)); problems.Err() == nil || !strings.Contains(problems.Err().Error(), want) {
			t.Errorf("%s: %v, want %q", pins, problems.Err(), want)
		}
	}
}
