package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Passed is the outcome of a spec that passed; every other one is a failure. These are ginkgo's words.
const Passed = "passed"

// Result is what became of one spec.
type Result struct {
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	// Failure is what the spec said of its failure, or empty.
	Failure string `json:"failure,omitempty"`
}

// Names are the names of all conformance specs, in upstream's order.
func (s Suite) Names(ctx context.Context) ([]string, error) {
	out, err := output(ctx, "", s.E2E, "--list-conformance-tests")
	if err != nil {
		return nil, fmt.Errorf("listing the conformance specs: %w", err)
	}
	var specs []struct {
		Name string `yaml:"codename"`
	}
	if err := yaml.Unmarshal([]byte(out), &specs); err != nil {
		return nil, fmt.Errorf("reading the list of conformance specs: %w", err)
	}
	names := make([]string, len(specs))
	for i, spec := range specs {
		names[i] = spec.Name
	}
	return names, nil
}

// Cluster is the cluster to judge.
type Cluster struct {
	// Kubeconfig is the path of an administrator's, and Kubectl that of the program which some specs run.
	Kubeconfig, Kubectl string
}

// Run runs one spec, by its name, and returns what became of it. Output is the suite's own text.
//
// Each spec has a process of its own, which costs under two seconds, so that a run that is stopped has lost one of them.
func (s Suite) Run(ctx context.Context, c Cluster, name string, out io.Writer) (result Result, err error) {
	dir, err := os.MkdirTemp("", "hardtack-conformance-")
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	report := filepath.Join(dir, "report.json")
	// A spec that failed is an error of the program too.
	failed := run.Run(ctx, run.Command{Name: s.E2E, Stdout: out, Stderr: out, Args: []string{
		"--kubeconfig=" + c.Kubeconfig, "--kubectl-path=" + c.Kubectl, "--provider=skeleton", "--disable-log-dump",
		"--ginkgo.json-report=" + report, "--ginkgo.no-color", "--ginkgo.timeout=24h", "--report-dir=" + dir,
		"--ginkgo.focus=" + regexp.QuoteMeta(name) + "$",
	}})
	if ctx.Err() != nil {
		return Result{}, fmt.Errorf("running %s: %w", name, context.Cause(ctx))
	}
	data, err := os.ReadFile(report)
	if err != nil {
		return Result{}, fmt.Errorf("running %s: %w", name, errors.Join(failed, err))
	}
	results, err := Read(data)
	switch {
	case err != nil:
		return Result{}, fmt.Errorf("reading what became of %s: %w", name, errors.Join(failed, err))
	case len(results) != 1:
		return Result{}, fmt.Errorf("running %s: %d specs ran: %w", name, len(results), failed)
	}
	return results[0], nil
}

// Read reads ginkgo's report: the specs that ran, and not what was left out.
func Read(data []byte) ([]Result, error) {
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts    []string
			LeafNodeText, LeafNodeType string
			State                      string
			RunTime                    time.Duration
			Failure                    struct{ Message string }
		}
	}
	if err := json.Unmarshal(data, &reports); err != nil {
		return nil, err
	}
	var results []Result
	for _, r := range reports {
		for _, spec := range r.SpecReports {
			// A spec that was not asked for is "skipped" without a time; one that skips itself has taken some.
			if spec.LeafNodeType != "It" || spec.State == "skipped" && spec.RunTime == 0 || spec.State == "pending" {
				continue
			}
			results = append(results, Result{
				Name:    strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "),
				Outcome: spec.State, Seconds: spec.RunTime.Seconds(), Failure: spec.Failure.Message,
			})
		}
	}
	return results, nil
}
