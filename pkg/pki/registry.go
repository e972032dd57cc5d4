package pki

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hardtack/packer-plugin-hardtack/pkg/role"
)

// RegistryObject is the object with the credentials of a registry, by its host as images name it. Parameter Store takes no
// colon, and a host has no underscore: that of a port is one.
func RegistryObject(host string) string {
	return role.Registries + strings.ReplaceAll(host, ":", "_")
}

// RegistryOf is the host of a registry whose credentials an object has.
func RegistryOf(object string) string {
	return strings.ReplaceAll(strings.TrimPrefix(object, role.Registries), "_", ":")
}

// RegistryCredentials are what a registry asks for: a user and a password, or a token in the place of the password.
type RegistryCredentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// maxCredentials is the length of an object in Parameter Store, but for advanced parameters, which cost money.
const maxCredentials = 4096

// Encode returns the object's content. Its errors never contain the password.
func (c RegistryCredentials) Encode() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(c); err != nil {
		return nil, errors.New("encoding the credentials of a registry")
	}
	if data.Len() > maxCredentials {
		return nil, fmt.Errorf("the credentials have %d bytes, and the store takes %d", data.Len(), maxCredentials)
	}
	return data.Bytes(), nil
}

// check reports what no registry takes: HTTP's basic authentication (RFC 7617) puts a colon behind the user, and allows no
// control characters. What is not UTF-8 would be stored as something else: JSON has no other text.
func (c RegistryCredentials) check() error {
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case c.Username == "":
		return errors.New("the credentials have no user")
	case strings.Contains(c.Username, ":") || strings.ContainsFunc(c.Username, control):
		return fmt.Errorf("the user %q has a colon or a control character, which no registry takes", c.Username)
	case !utf8.ValidString(c.Username):
		return fmt.Errorf("the user %q is not UTF-8: write it in that encoding", c.Username)
	case c.Password == "":
		return errors.New("the credentials have no password")
	case strings.ContainsFunc(strings.ReplaceAll(c.Password, "\n", ""), control):
		return errors.New("the password has a control character, which no registry takes")
	case !utf8.ValidString(c.Password):
		return errors.New("the password is not UTF-8: write it in that encoding, or choose another")
	}
	return nil
}

// ParseRegistryCredentials reads an object's content. Its errors never contain the password.
func ParseRegistryCredentials(data []byte) (c RegistryCredentials, err error) {
	if json.Unmarshal(data, &c) != nil {
		return RegistryCredentials{}, errors.New("reading the credentials of a registry: they are not JSON with username and password")
	}
	return c, c.check()
}

// RegistrySources says for registries, as images name them, whose credentials a pull needs: the registry's own, or those of its
// mirror. As arguments of a program each is "docker.io=mirror.example.org", or the name alone where both are the same.
type RegistrySources map[string]string

// RegistrySource is one argument.
func RegistrySource(registry, host string) string {
	if registry == host {
		return registry
	}
	return registry + "=" + host
}

// ParseRegistrySources reads arguments.
func ParseRegistrySources(args []string) (RegistrySources, error) {
	sources := RegistrySources{}
	for _, arg := range args {
		registry, host, other := strings.Cut(arg, "=")
		if !other {
			host = registry
		}
		if registry == "" || host == "" || strings.ContainsAny(arg, "/_ ") || sources[registry] != "" {
			return nil, fmt.Errorf("%q is not of the form REGISTRY or REGISTRY=HOST, or is there twice", arg)
		}
		sources[registry] = host
	}
	return sources, nil
}
