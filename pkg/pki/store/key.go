package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// DefaultKey is the alias of AWS's own key for Parameter Store, which everyone in the account may use who may read a
// parameter.
const DefaultKey = "alias/aws/ssm"

// keptVersions is how many versions of a parameter Parameter Store keeps. It deletes the oldest by itself only, and
// every one can be read.
const keptVersions = 100

// Key returns the KMS key that encrypts the store's secrets, as an ARN or an alias. The store itself names it, so that
// all who write use the same one: Parameter Store encrypts with DefaultKey what is written without a key, even where the
// version before had another.
func (s *SSM) Key(ctx context.Context) (string, error) {
	content, err := s.Get(ctx, pki.PublicSecretsKey)
	switch {
	case errors.Is(err, pki.ErrNotFound):
		return DefaultKey, nil
	case err != nil:
		return "", fmt.Errorf("reading which key encrypts the secrets: %w", err)
	}
	return string(content), nil
}

// SetKey sets the key of what is written from now on, in machines too. The machines' roles must be able to use it; see
// Policy.
func (s *SSM) SetKey(ctx context.Context, key string) error {
	return s.Put(ctx, pki.PublicSecretsKey, []byte(key))
}

// stray is a secret of which a version is not under the store's key.
type stray struct {
	object string
	// puts is how often it has to be written until none is.
	puts int
}

// Strays returns the secrets of which Parameter Store keeps a version, the last or an earlier one, under another key.
func (s *SSM) Strays(ctx context.Context, key string) ([]string, error) {
	found, err := s.strays(ctx, key)
	var names []string
	for _, f := range found {
		names = append(names, f.object)
	}
	return names, err
}

func (s *SSM) strays(ctx context.Context, key string) ([]stray, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the names in %s: %w", s, err)
	}
	var found []stray
	pages := ssm.NewGetParametersByPathPaginator(client, &ssm.GetParametersByPathInput{Path: &s.root, Recursive: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.explain("reading the names of", "all objects", err)
		}
		for _, p := range page.Parameters {
			if p.Type != types.ParameterTypeSecureString {
				continue
			}
			object := strings.TrimPrefix(aws.ToString(p.Name), s.root+"/")
			puts, err := s.putsUntil(ctx, client, object, key)
			if err != nil {
				return nil, err
			}
			if puts > 0 {
				found = append(found, stray{object, puts})
			}
		}
	}
	return found, nil
}

// putsUntil returns how often an object has to be written until every kept version is under the key. Of the bootstrap
// token only the last version counts: the earlier ones have expired within a day.
func (s *SSM) putsUntil(ctx context.Context, client *ssm.Client, object, key string) (int, error) {
	var last, other int64
	pages := ssm.NewGetParameterHistoryPaginator(client, &ssm.GetParameterHistoryInput{Name: s.name(object)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, s.explain("reading the versions of", object, err)
		}
		for _, v := range page.Parameters {
			last = max(last, v.Version)
			if aws.ToString(v.KeyId) != key {
				other = max(other, v.Version)
			}
		}
	}
	switch {
	case other == 0, object == pki.BootstrapToken && other < last:
		return 0, nil
	case object == pki.BootstrapToken:
		return 1, nil
	}
	return max(1, int(other+keptVersions-last)), nil
}

// Rekey writes every secret again, with the same content, until no version that Parameter Store keeps is under another
// key than the store's. The last versions come first, and each can be read at any time. An interrupted run can be
// repeated. told, if not nil, gets how many of the writes are done. A write by somebody else at the same moment is an
// error that matches pki.ErrChanged.
func (s *SSM) Rekey(ctx context.Context, told func(done, all int)) error {
	key, err := s.Key(ctx)
	if err != nil {
		return err
	}
	for {
		found, err := s.strays(ctx, key)
		if err != nil || len(found) == 0 {
			return err
		}
		all, done := 0, 0
		for _, f := range found {
			all += f.puts
		}
		for len(found) > 0 {
			for i := range found {
				if err := s.again(ctx, found[i].object); err != nil {
					return err
				}
				found[i].puts--
				if done++; told != nil {
					told(done, all)
				}
			}
			found = slices.DeleteFunc(found, func(f stray) bool { return f.puts == 0 })
		}
	}
}

// again writes what an object has.
func (s *SSM) again(ctx context.Context, object string) error {
	content, version, err := s.get(ctx, object)
	if err != nil {
		return err
	}
	written, err := s.put(ctx, "encrypting", object, content, true)
	if err == nil && written != version+1 {
		err = changed(s, object)
	}
	return err
}
