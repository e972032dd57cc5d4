package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Mode is a file's permission bits; text is octal with a leading zero: "0755".
type Mode fs.FileMode

// String prints four octal digits.
func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalText is String, for JSON and YAML.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads octal digits with a leading zero. Without the zero the reader could not know
// whether decimal was meant, so that is an error, as is any bit but the nine permission bits: the
// image has no set-user-id file.
func (m *Mode) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 8, 32)
	if err != nil || len(text) < 2 || text[0] != '0' {
		return fmt.Errorf("mode %q is not octal with a leading zero (write \"0755\")", text)
	}
	if n&^uint64(fs.ModePerm) != 0 {
		return fmt.Errorf("mode %q has more than the nine permission bits", text)
	}
	*m = Mode(n)
	return nil
}

// UnmarshalYAML reads the text as it is written, quoted or not. It exists beside UnmarshalText because
// the YAML library stops at the first error of that one and does not say where it is.
func (m *Mode) UnmarshalYAML(n *yaml.Node) error {
	err := errors.New("mode is not a scalar")
	if n.Kind == yaml.ScalarNode {
		err = m.UnmarshalText([]byte(n.Value))
	}
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
	}
	return nil
}
