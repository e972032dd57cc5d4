package spec

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/machine"
)

// MaxUserData is how many bytes of user data EC2 takes, before its own base64.
const MaxUserData = 16 << 10

// writeFile is one entry of write_files.
type writeFile struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions,omitempty"`
	Owner       string `yaml:"owner,omitempty"`
	Encoding    string `yaml:"encoding,omitempty"`
	Content     string `yaml:"content"`
}

// UserData is the user data of a group's machines: a #cloud-config, packed by gzip where it would not
// fit otherwise. ca is the cluster's public CA in PEM, and may be empty where a machine finds it in the
// store. The same configuration gives the same bytes.
func (c *Complete) UserData(group string, ca []byte) ([]byte, error) {
	g, err := c.Group(group)
	if err != nil {
		return nil, err
	}
	files, err := c.Files(group, ca)
	if err != nil {
		return nil, err
	}
	told := c.Machine(g)
	parts := c.userDataParts(g)
	if told.ConfigHash, err = hash(told, files, parts); err != nil {
		return nil, err
	}
	data, err := told.Marshal()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", machine.Path, err)
	}
	config, err := cloudConfig(append([]File{{Path: machine.Path, Content: data}}, files...))
	if err != nil {
		return nil, err
	}
	if len(parts) > 0 {
		if config, err = message(config, parts); err != nil {
			return nil, err
		}
	}
	return c.fit(group, config)
}

// Hash is the configuration's hash as the group's machines carry it: it changes when, and only when,
// their user data says something else.
func (c *Complete) Hash(group string, ca []byte) (string, error) {
	g, err := c.Group(group)
	if err != nil {
		return "", err
	}
	files, err := c.Files(group, ca)
	if err != nil {
		return "", err
	}
	return hash(c.Machine(g), files, c.userDataParts(g))
}

// hash is over everything that the user data says, but for the hash itself.
func hash(m machine.Config, files []File, parts []UserDataPart) (string, error) {
	m.ConfigHash = ""
	data, err := m.Marshal()
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", machine.Path, err)
	}
	sum := sha256.New()
	for _, f := range append([]File{{Path: machine.Path, Content: data}}, files...) {
		// Lengths keep one file's end from being another's beginning.
		fmt.Fprintf(sum, "%q %q %q %d\n%s", f.Path, f.Mode, f.Owner, len(f.Content), f.Content)
	}
	for _, p := range parts {
		fmt.Fprintf(sum, "part %q %q %d\n%s", p.Name, p.Type, len(p.Content), p.Content)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), nil
}

// cloudConfig writes a #cloud-config.
func cloudConfig(files []File) ([]byte, error) {
	var entries []writeFile
	for _, f := range files {
		e := writeFile{Path: f.Path, Permissions: f.Mode, Owner: f.Owner, Content: string(f.Content)}
		if !utf8.Valid(f.Content) || bytes.ContainsAny(f.Content, "\x00\r") {
			e.Encoding, e.Content = "b64", base64.StdEncoding.EncodeToString(f.Content)
		}
		entries = append(entries, e)
	}
	var b bytes.Buffer
	b.WriteString("#cloud-config\n")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(map[string]any{"write_files": entries}); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	return b.Bytes(), nil
}

// fit packs what is too long.
func (c *Complete) fit(group string, data []byte) ([]byte, error) {
	if len(data) <= MaxUserData {
		return data, nil
	}
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if b.Len() > MaxUserData {
		return nil, fmt.Errorf("the user data of group %s is %d bytes, %d when packed, and %d is what fits: take fileAssets or additionalUserData out, or bake them into the image",
			group, len(data), b.Len(), MaxUserData)
	}
	return b.Bytes(), nil
}
