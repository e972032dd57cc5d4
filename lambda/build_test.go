package lambda_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// zipLimit is what a zip may have, for arm64 and for amd64, which is a tenth longer.
const zipLimit = 4_000_000

// builds are the directories of the built functions, by what is in the place of the machine's clock.
var builds = struct {
	sync.Mutex
	dirs map[string]string
}{dirs: map[string]string{}}

// bootstrap builds the function as `make lambda` does. A clock is a file that takes the place of the
// machine's, in a build that is otherwise the same; none is the function as it is shipped.
func bootstrap(t *testing.T, clock string) string {
	t.Helper()
	builds.Lock()
	defer builds.Unlock()
	if builds.dirs[clock] == "" {
		dir, err := build(clock)
		if err != nil {
			t.Fatalf("building the function: %v", err)
		}
		builds.dirs[clock] = dir
	}
	return filepath.Join(builds.dirs[clock], "bootstrap")
}

// build makes a directory, which outlives the test that needs it first, and builds into it.
func build(clock string) (string, error) {
	dir, err := os.MkdirTemp("", "hardtack-lambda-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc", "-ldflags", "-s -w", "-o", filepath.Join(dir, "bootstrap")}
	if clock != "" {
		file := filepath.Join(dir, "overlay.json")
		args = append(args, "-overlay", file)
		err = overlay(file, "../pkg/base/clock/system.go", clock)
	}
	if err == nil {
		cmd := exec.Command("go", append(args, "./function")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		os.RemoveAll(dir)
	}
	return dir, err
}

// overlay writes what `go build -overlay` takes.
func overlay(path, file, by string) error {
	from, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(by)
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{from: to}})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range builds.dirs {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// zipped packs the built function.
func zipped(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dns.zip")
	out, err := exec.Command("go", "run", "./pack", "-max", strconv.Itoa(zipLimit), "-o", path, bootstrap(t, "")).CombinedOutput()
	if err != nil {
		t.Fatalf("packing: %v: %s", err, out)
	}
	return path
}

func TestZip(t *testing.T) {
	a, err := os.ReadFile(zipped(t))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(zipped(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Error("the same program packs to other bytes the second time")
	}
	t.Logf("zip for %s: %d bytes", runtime.GOARCH, len(a))
	out, err := exec.Command("go", "run", "./pack", "-max", "1000", "-o", filepath.Join(t.TempDir(), "x.zip"), bootstrap(t, "")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "may have 1000") {
		t.Errorf("packing more than the limit: %v: %s", err, out)
	}
}
