package spec

import (
	"fmt"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/problem"
)

// Minimal is the document of the default cluster of a name.
func Minimal(name string) []byte {
	return []byte("apiVersion: " + APIVersion + "\nkind: " + Kind + "\nname: " + name + "\n")
}

// Load reads a document and completes it by what the image has; file is only for messages. Warnings are of a complete cluster
// too. An error lists every problem, a line each.
func Load(image *Image, file string, data []byte) (complete *Complete, warnings problem.List, err error) {
	cluster, problems := parse(file, data)
	if problems.Err() != nil && cluster != nil {
		problems = append(problems, cluster.besides(image, problems)...) // all in one pass
		problems.Sort()
	}
	if err := problems.Err(); err != nil {
		return nil, nil, fmt.Errorf("reading the cluster:\n%w", err)
	}
	complete, problems = cluster.Complete(image)
	for _, p := range problems {
		if p.Severity == problem.Warning {
			warnings = append(warnings, p)
		}
	}
	if err := problems.Err(); err != nil {
		return nil, warnings, fmt.Errorf("completing the cluster:\n%w", err)
	}
	return complete, warnings, nil
}
