package spec

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/machine"
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

// UserData returns the user data of a group's machines: a #cloud-config, compressed by gzip if it would not fit
// otherwise. It only has values that a machine cannot know by itself. ca is the cluster's public CA in PEM; it is
// usually empty, and the machine reads the CA from the store. more are files of one machine, which may hold what no group's
// user data hold: its own bootstrap token. The same configuration always results in the same bytes.
func (c *Complete) UserData(group string, ca []byte, more ...File) ([]byte, error) {
	files, err := c.Files(group, ca)
	if err != nil {
		return nil, err
	}
	data, err := c.assemble(group, append(more, files...)) // role files last
	if err != nil {
		return nil, err
	}
	return c.fit(group, data)
}

// assemble puts a group's files into one text, with the operator's parts for the group.
func (c *Complete) assemble(group string, files []File) ([]byte, error) {
	g, err := c.Group(group)
	if err != nil {
		return nil, err
	}
	config, err := cloudConfig(files)
	if err != nil {
		return nil, err
	}
	if parts := c.userDataParts(g); len(parts) > 0 {
		return message(config, parts)
	}
	return config, nil
}

// Hash is the hash of the group's user data, by which its machines identify their configuration.
func (c *Complete) Hash(group string, ca []byte) (string, error) {
	data, err := c.UserData(group, ca)
	if err != nil {
		return "", err
	}
	return machine.Hash(data), nil
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
	enc.CompactSeqIndent()
	if err := enc.Encode(map[string]any{"write_files": entries}); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("writing the user data: %w", err)
	}
	return b.Bytes(), nil
}

// fit compresses user data that is too long.
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
