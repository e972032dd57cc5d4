package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/spec"
)

// watcher is a writer that calls back when the text has been written.
type watcher struct {
	mu   sync.Mutex
	all  bytes.Buffer
	text string
	then func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if w.then != nil && strings.Contains(w.all.String(), w.text) {
		w.then()
		w.then = nil
	}
	return len(p), nil
}

// hardtackUntil runs the program until it ends, or until its story has the text and it is interrupted.
func hardtackUntil(t *testing.T, text string, args ...string) (story string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := &watcher{text: text}
	if text != "" {
		w.then = cancel
	}
	err = newApp(io.Discard, w).RunContext(ctx, append([]string{"hardtack"}, args...))
	return w.all.String(), err
}

// TestStackInterrupted checks that an interrupted command says which operations continue, and that the same command
// continues them.
func TestStackInterrupted(t *testing.T) {
	a := newStackAccount(t, 100*time.Millisecond)
	for k, v := range map[string]string{"AWS_ENDPOINT_URL": a.url, "AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret", "HOME": t.TempDir()} {
		t.Setenv(k, v)
	}
	document := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(document, spec.Minimal("demo"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HARDTACK_CLUSTER", document)
	image := func(id string) {
		if _, err := a.SSM().Put(awsfake.Parameter{Name: "/hardtack/stable/image-id", Value: id}, true); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		if story, err := hardtackUntil(t, "", args...); err != nil {
			t.Fatalf("hardtack %s: %v\n%s", strings.Join(args, " "), err, story)
		}
	}
	interrupted := func(text, want string, args ...string) {
		t.Helper()
		story, err := hardtackUntil(t, text, args...)
		if !errors.Is(err, context.Canceled) || !strings.Contains(besidesCancelled(err), want) {
			t.Errorf("hardtack %s: %v\n%s\nwants %s", strings.Join(args, " "), err, story, want)
		}
	}
	refreshes := func() string {
		out, err := a.api.DescribeInstanceRefreshes(t.Context(), &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: new("demo-minions")})
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, r := range out.InstanceRefreshes {
			states = append(states, string(r.Status))
		}
		return strings.Join(states, " ")
	}
	image("ami-0000000000000000a")
	run("pki", "create")
	apply := []string{"stack", "apply", "--yes", "--poll", "20ms", "--vpc", "vpc-00000000000000001", "--subnets", "subnet-0000000000000000a"}
	interrupted("CREATE_IN_PROGRESS", "CloudFormation goes on with stack hardtack-demo; hardtack stack status -f "+document+" shows it", apply...)
	run(apply...)
	run("stack", "apply", "--yes", "--poll", "20ms", "--machines", "yes")
	if err := a.settle(t.Context()); err != nil {
		t.Fatal(err)
	}

	image("ami-0000000000000000b")
	a.mu.Lock()
	a.broken = "ami-0000000000000000b"
	a.mu.Unlock()
	run("stack", "apply", "--yes", "--poll", "20ms")
	refresh := []string{"stack", "refresh", "--yes", "--poll", "20ms", "--group", "minions", "--checkpoint-delay", "0s", "--min-healthy", "50"}
	interrupted("InProgress", "AutoScaling goes on refreshing demo-minions", refresh...)
	if got := refreshes(); got != "InProgress" {
		t.Errorf("refreshes are %s", got)
	}
	interrupted("InProgress", "the refresh of demo-minions is cancelled", append(refresh, "--cancel-on-interrupt")...)
	if got := refreshes(); !strings.HasPrefix(got, "Cancel") {
		t.Errorf("refreshes are %s", got)
	}
	a.mu.Lock()
	a.broken = ""
	a.mu.Unlock()
	run(refresh...)
	if got := refreshes(); got != "Successful Cancelled" {
		t.Errorf("refreshes are %s", got)
	}
}
