package userdata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// What gives a part to the instance with one launch index. If a part has both the header counts.
const (
	launchIndexHeader = "Launch-Index"
	launchIndexKey    = "launch-index"
)

// NeedsLaunchIndex reports whether Parse needs to know the machine's launch index for this user data.
func NeedsLaunchIndex(data []byte) bool {
	_, findings := Parse(data, nil)
	return slices.ContainsFunc(findings, func(p problem.Problem) bool { return p.Rule == RuleLaunchIndex })
}

// isForUs reports whether a cloud-config is for the machine, by its launch index.
func (p *parser) isForUs(t part, keys []pair) bool {
	text, at := t.launchIndex, (*yaml.Node)(nil)
	if n, ok := lookup(keys, launchIndexKey); text == "" && ok && !isNull(n) {
		text, at = n.Value, n
	}
	if text == "" && at == nil {
		return true
	}
	found := problem.Problem{File: t.name, Field: launchIndexHeader, Rule: RuleLaunchIndex}
	if at != nil {
		found.Field, found.Line = launchIndexKey, at.Line
	}
	index, err := strconv.Atoi(strings.TrimSpace(text))
	switch {
	case err != nil || index < 0:
		found.Rule, found.Text = "", "must be a number from 0, the launch index of an instance"
	case p.launchIndex == nil:
		found.Text = fmt.Sprintf("is for the instance with the launch index %d, and nothing says which one this machine has", index)
		found.Hint = "an EC2 instance has it in its metadata (ami-launch-index), and a NoCloud seed may have launch-index in its meta-data"
	case *p.launchIndex != index:
		found.Severity = problem.Warning
		found.Text = fmt.Sprintf("is for the instance with the launch index %d, and this machine has %d", index, *p.launchIndex)
	default:
		return true
	}
	p.problems.Add(found)
	return false
}
