package publish_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/pkg/awsfake"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/issuer"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki/publish"
)

const url = "https://id.example.org/demo"

// newPublic is PEM of n public keys.
func newPublic(t *testing.T, n int) (pem []byte) {
	t.Helper()
	for range n {
		key, err := pki.NewKey()
		assert.NilError(t, err)
		block, err := pki.EncodePublic(&key.PublicKey)
		assert.NilError(t, err)
		pem = append(pem, block...)
	}
	return pem
}

// TestPlaces: what is published is there, is written again only if it is different, and keys come first.
func TestPlaces(t *testing.T) {
	account := awsfake.New(awsfake.Options{})
	server := httptest.NewServer(account.Handler())
	t.Cleanup(server.Close)
	assert.NilError(t, account.S3().Create(awsfake.Bucket{Name: "tokens"}))
	load := func(context.Context) (aws.Config, error) {
		return aws.Config{Region: "us-east-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", "")}, nil
	}
	dir := t.TempDir()
	read := map[string]func(string) []byte{
		"dir:" + dir: func(name string) []byte {
			data, err := os.ReadFile(filepath.Join(dir, name))
			assert.NilError(t, err)
			info, err := os.Stat(filepath.Join(dir, name))
			assert.NilError(t, err)
			assert.Equal(t, info.Mode().Perm(), os.FileMode(0o644))
			return data
		},
		"s3://tokens/a/b?region=us-west-2": func(name string) []byte { return account.S3().Objects("tokens")["a/b/"+name] },
	}
	both := []string{issuer.KeysPath, issuer.ConfigurationPath}
	for location, get := range read {
		place, err := publish.Open(t.Context(), location, load)
		assert.NilError(t, err)
		assert.Equal(t, place.String(), location)
		i := publish.Issuer{URL: url, Place: place}
		one, two := newPublic(t, 1), newPublic(t, 2)
		for _, step := range []struct {
			public []byte
			want   []string
			keys   int
		}{{one, both, 1}, {one, nil, 1}, {two, both[:1], 2}, {one, both[:1], 1}} {
			changed, err := i.Write(t.Context(), step.public)
			assert.NilError(t, err)
			assert.DeepEqual(t, changed, step.want)
			names, err := issuer.ParseKeys(get(issuer.KeysPath))
			assert.NilError(t, err)
			assert.Equal(t, len(names), step.keys)
			c, err := issuer.ParseConfiguration(get(issuer.ConfigurationPath))
			assert.NilError(t, err)
			assert.Equal(t, c.Issuer, url)
		}
	}
	for location, want := range map[string]string{"s3://tokens-{account}": "whole name", "ftp://x": "not of the form", "dir:x": "not an absolute"} {
		_, err := publish.Open(t.Context(), location, load)
		assert.ErrorContains(t, err, want)
	}
}

// answers is a web server, by path.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "id.example.org" {
		return nil, errors.New("no such host")
	}
	text, ok := a[strings.TrimPrefix(r.URL.Path, "/demo/")]
	if !ok {
		return &http.Response{Status: "403 Forbidden", StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader(""))}, nil
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestCheck: who verifies tokens gets no further than the check does.
func TestCheck(t *testing.T) {
	public := newPublic(t, 2)
	keys, err := pki.ParsePublic(public)
	assert.NilError(t, err)
	documents, err := issuer.Documents(url, keys)
	assert.NilError(t, err)
	right := func() answers {
		a := answers{}
		for _, d := range documents {
			a[d.Path] = string(d.Content)
		}
		return a
	}
	for _, tt := range []struct {
		name   string
		change func(answers)
		want   string
	}{
		{"right", func(answers) {}, ""},
		{"nobody may read the keys", func(a answers) { delete(a, issuer.KeysPath) }, "403 Forbidden: everybody must be allowed"},
		{"no configuration", func(a answers) { delete(a, issuer.ConfigurationPath) }, "403 Forbidden"},
		{"a page", func(a answers) { a[issuer.KeysPath] = "<html>" }, "reading the keys"},
		{"no TLS", func(a answers) {
			a[issuer.ConfigurationPath] = strings.ReplaceAll(a[issuer.ConfigurationPath], `"jwks_uri":"https`, `"jwks_uri":"http`)
		}, "begins with https"},
		{"another server's keys", func(a answers) {
			a[issuer.ConfigurationPath] = strings.ReplaceAll(a[issuer.ConfigurationPath], "example.org/demo/openid", "example.com/openid")
		}, "no such host"},
		{"a slash", func(a answers) {
			a[issuer.ConfigurationPath] = strings.Replace(a[issuer.ConfigurationPath], url+`"`, url+`/"`, 1)
		}, "the configuration is of the issuer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := right()
			tt.change(a)
			err := publish.Issuer{URL: url, Client: &http.Client{Transport: a}}.Check(t.Context(), public)
			if tt.want == "" {
				assert.NilError(t, err)
				return
			}
			assert.ErrorContains(t, err, tt.want)
		})
	}
	err = publish.Issuer{URL: url, Client: &http.Client{Transport: right()}}.Check(t.Context(), newPublic(t, 1))
	var unverifiable *publish.UnverifiableError
	assert.Assert(t, errors.As(err, &unverifiable))
	assert.Equal(t, len(unverifiable.Problems), 3)
}
