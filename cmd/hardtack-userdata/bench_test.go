package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hardtack/packer-plugin-hardtack/images/imagestest"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/imds/imdstest"
)

// benchUserData is user data of the size that a minion has.
const benchUserData = "#cloud-config\nwrite_files:\n- path: /etc/sysconfig/kubernetes-minions\n  permissions: '0644'\n  content: |\n    CLUSTER_NAME=demo\n    STORE=dir:/srv/store\n    ZONE=k8s\n"

// BenchmarkReader measures what one run of the program takes by itself, from two sources, beside a program that does
// nothing, and beside the command line in $BESIDE, such as an earlier agent's "hardtack-agent userdata". The figures are
// of the process (getrusage), not of the clock: ms is its processor time, at best; faults are its page faults, each of
// which costs the kernel a walk, and a cold disk a read; MB is the program's size. With qemu-x86_64 in the path (Debian's
// qemu-user) there are the same milliseconds under emulation, and blocks, the pieces of code that ran at all: an
// emulated processor translates each at its first run.
func BenchmarkReader(b *testing.B) {
	floor := filepath.Join(b.TempDir(), "floor")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", floor, "./testdata/floor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	service := httptest.NewServer(&imdstest.Service{InstanceID: "i-0123456789abcdef0", UserData: []byte(benchUserData)})
	b.Cleanup(service.Close)
	roots := map[string]map[string]string{
		"credential": {"run/credentials/@system/hardtack.userdata": benchUserData},
		"imds":       {"proc/cmdline": "hardtack.userdata=imds hardtack.imds=" + service.URL},
	}
	beside := strings.Fields(os.Getenv("BESIDE"))
	b.Run("floor", func(b *testing.B) { measure(b, func(testing.TB) []string { return []string{floor} }) })
	for _, source := range []string{"credential", "imds"} {
		for name, command := range map[string][]string{"reader": {program}, "beside": beside} {
			if len(command) == 0 {
				continue
			}
			b.Run(source+"/"+name, func(b *testing.B) {
				measure(b, func(tb testing.TB) []string { // each run is a first boot
					tb.Helper()
					root := tb.TempDir()
					imagestest.Write(tb, root, roots[source])
					return append(slices.Clone(command), "--root", root)
				})
			})
		}
	}
}

// measure runs command again and again, and reports what is best of each figure.
func measure(b *testing.B, command func(testing.TB) []string) {
	b.Helper()
	ms, faults := 1e9, 1e9
	for b.Loop() {
		took, n := usageOf(b, command(b))
		ms, faults = min(ms, took), min(faults, n)
	}
	b.ReportMetric(0, "ns/op") // is the clock's
	b.ReportMetric(ms, "ms")
	b.ReportMetric(faults, "faults")
	if info, err := os.Stat(command(b)[0]); err == nil {
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
	emulator, err := exec.LookPath("qemu-x86_64")
	if err != nil {
		b.Log("no qemu-x86_64 (Debian's qemu-user): nothing is measured under emulation")
		return
	}
	ms = 1e9
	for range 10 {
		took, _ := usageOf(b, append([]string{emulator}, command(b)...))
		ms = min(ms, took)
	}
	b.ReportMetric(ms, "emulated-ms")
	trace := filepath.Join(b.TempDir(), "trace")
	usageOf(b, append([]string{emulator, "-d", "in_asm", "-D", trace}, command(b)...))
	text, err := os.ReadFile(trace)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(bytes.Count(text, []byte("\nIN:"))), "blocks")
}

// usageOf runs a command, and returns its processor time in milliseconds and its page faults.
func usageOf(b *testing.B, command []string) (ms, faults float64) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), command[0], command[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", command, err, out)
	}
	used, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		b.Fatal("the system does not say what a process has used")
	}
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return float64(cpu) / float64(time.Millisecond), float64(used.Minflt + used.Majflt)
}
