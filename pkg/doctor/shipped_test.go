package doctor

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// TestShippedIsTheTemplate holds the constants to lambda/template.yaml.
func TestShippedIsTheTemplate(t *testing.T) {
	text, err := os.ReadFile("../../lambda/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Parameters map[string]yaml.Node `yaml:"Parameters"`
		Resources  map[string]struct {
			Type       string    `yaml:"Type"`
			Properties yaml.Node `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{paramCluster, paramGroups, paramZone, paramSuffix, paramHook, paramArchitecture, paramRetention} {
		if _, ok := doc.Parameters[p]; !ok {
			t.Errorf("the template has no parameter %s", p)
		}
	}
	for _, r := range resources() {
		want := strings.Replace(r.Type, "AWS::Lambda::Function", "AWS::Serverless::Function", 1)
		if got := doc.Resources[r.ID].Type; got != want && r.ID != "FunctionPokes" { // SAM makes that of the function's event
			t.Errorf("%s is an %q in the template, and %s here", r.ID, got, want)
		}
	}
	if got, want := len(doc.Resources), len(resources())-1; got != want {
		t.Errorf("the template has %d resources, and %d are known here", got, want)
	}
	for _, v := range []struct{ path, want string }{
		{"Function.Runtime", runtime}, {"Function.Handler", handler}, {"Function.MemorySize", strconv.Itoa(memory)}, {"Function.Timeout", inSeconds(timeout)},
		{"Function.Events.Pokes.Properties.BatchSize", strconv.Itoa(batch)}, {"Function.Events.Pokes.Properties.MaximumBatchingWindowInSeconds", inSeconds(window)},
		{"Function.Events.Pokes.Properties.ScalingConfig.MaximumConcurrency", strconv.Itoa(concurrency)},
		{"Queue.VisibilityTimeout", inSeconds(visibility)}, {"Queue.MessageRetentionPeriod", inSeconds(retention)}, {"Queue.RedrivePolicy.maxReceiveCount", strconv.Itoa(maxReceive)},
		{"DeadLetters.MessageRetentionPeriod", inSeconds(deadRetention)}, {"SweepRule.ScheduleExpression", sweepEvery}, {"AgeAlarm.Threshold", inSeconds(late)},
	} {
		id, path, _ := strings.Cut(v.path, ".")
		node := doc.Resources[id].Properties
		if got := at(&node, path); got != v.want {
			t.Errorf("%s is %q in the template, and %q here", v.path, got, v.want)
		}
	}
}

func inSeconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// at is the scalar at a path of keys.
func at(n *yaml.Node, path string) string {
	for key := range strings.SplitSeq(path, ".") {
		var next *yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == key {
				next = n.Content[i+1]
			}
		}
		if next == nil {
			return ""
		}
		n = next
	}
	return n.Value
}
