package userdata

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// InstanceID returns the instance id of the meta-data of a NoCloud seed, which is YAML or JSON; "" if there is none.
func InstanceID(metadata []byte) (string, error) {
	if len(metadata) > MaxInput {
		return "", fmt.Errorf("meta-data of %d bytes is over the bound of %d", len(metadata), MaxInput)
	}
	root, err := decodeYAML(metadata)
	if err != nil {
		return "", fmt.Errorf("reading meta-data: %w", err)
	}
	if root == nil {
		return "", nil
	}
	if root.Kind != yaml.MappingNode {
		return "", fmt.Errorf("reading meta-data: it is a mapping of keys, not %s", describe(root))
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != "instance-id" {
			continue
		}
		value := resolve(root.Content[i+1])
		if value.Kind != yaml.ScalarNode {
			return "", fmt.Errorf("reading meta-data: line %d: instance-id must be text, not %s", value.Line, describe(value))
		}
		if isNull(value) {
			return "", nil
		}
		return value.Value, nil
	}
	return "", nil
}
