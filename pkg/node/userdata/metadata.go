package userdata

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Seed is what the meta-data of a NoCloud seed says about its machine.
type Seed struct {
	// InstanceID is empty and LaunchIndex nil if it does not say.
	InstanceID  string
	LaunchIndex *int
}

// ParseSeed parses the meta-data of a NoCloud seed, which is YAML or JSON.
func ParseSeed(metadata []byte) (Seed, error) {
	if len(metadata) > MaxInput {
		return Seed{}, fmt.Errorf("meta-data of %d bytes is over the bound of %d", len(metadata), MaxInput)
	}
	root, err := decodeYAML(metadata)
	if err != nil {
		return Seed{}, fmt.Errorf("reading meta-data: %w", err)
	}
	if root == nil {
		return Seed{}, nil
	}
	if root.Kind != yaml.MappingNode {
		return Seed{}, fmt.Errorf("reading meta-data: it is a mapping of keys, not %s", describe(root))
	}
	var s Seed
	if s.InstanceID, err = seedText(root, "instance-id"); err != nil {
		return Seed{}, err
	}
	text, err := seedText(root, launchIndexKey)
	if err != nil || text == "" {
		return s, err
	}
	index, err := strconv.Atoi(text)
	if err != nil {
		return Seed{}, fmt.Errorf("reading meta-data: %s must be a number, not %q", launchIndexKey, text)
	}
	s.LaunchIndex = &index
	return s, nil
}

// seedText returns the text of a key, "" if it is not there.
func seedText(root *yaml.Node, key string) (string, error) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value != key {
			continue
		}
		value := resolve(root.Content[i+1])
		if value.Kind != yaml.ScalarNode {
			return "", fmt.Errorf("reading meta-data: line %d: %s must be text, not %s", value.Line, key, describe(value))
		}
		if isNull(value) {
			return "", nil
		}
		return value.Value, nil
	}
	return "", nil
}
