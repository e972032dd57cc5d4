package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awsconfig"
	"github.com/hardtack/packer-plugin-hardtack/pkg/base/awserr"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/reason"
	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// Load returns the AWS configuration: region, credentials and number of attempts. Callers that report what they wait
// for use few attempts, to report early; callers that create many objects are throttled (three writes a second) and
// use more.
type Load func(context.Context) (aws.Config, error)

// Open returns the store at a location. It makes no request, and calls load only for a store in AWS.
func Open(_ context.Context, at Location, load Load) (Store, error) {
	switch at.Kind {
	case KindDir:
		return NewDir(at.Root), nil
	case KindSSM:
		return NewSSM(at.Root, load), nil
	}
	return nil, fmt.Errorf("store %q: neither %s nor %s", at, KindDir, KindSSM)
}

// SSM is a store in Parameter Store: secrets are SecureStrings under Key, public objects Strings. IAM decides who may read
// what; see Policy.
type SSM struct {
	root string
	load Load

	mu     sync.Mutex
	client *ssm.Client
	skew   time.Duration
}

var _ Store = (*SSM)(nil)

// NewSSM returns the store below a path. load is called at the first use, and again until it succeeds: a machine's
// metadata service may answer late.
func NewSSM(root string, load Load) *SSM {
	return &SSM{root: root, load: load}
}

// String returns the location.
func (s *SSM) String() string { return KindSSM + ":" + s.root }

func (s *SSM) name(object string) *string { return aws.String(s.root + "/" + object) }

// Skew returns how far the service's clock was ahead of this machine's at the last answer; 0 before the first. The SDK
// signs with the service's time if they differ, so that a wrong clock causes no error here.
func (s *SSM) Skew() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.skew
}

// connect returns the client.
func (s *SSM) connect(ctx context.Context) (*ssm.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	conf, err := s.load(ctx)
	if err != nil {
		return nil, outOfReach(err, fmt.Errorf("%w: %w", pki.ErrUnreachable, err))
	}
	if conf.Region == "" {
		return nil, fmt.Errorf("%w: no region: neither AWS_REGION nor a profile nor the metadata service says one", pki.ErrUnreachable)
	}
	s.client = ssm.NewFromConfig(conf)
	return s.client, nil
}

// Get reads the parameter.
func (s *SSM) Get(ctx context.Context, object string) ([]byte, error) {
	content, _, err := s.get(ctx, object)
	return content, err
}

// get returns the version too, which every write makes one more.
func (s *SSM) get(ctx context.Context, object string) ([]byte, int64, error) {
	client, err := s.begin(ctx, "reading", object)
	if err != nil {
		return nil, 0, err
	}
	out, err := client.GetParameter(ctx, &ssm.GetParameterInput{Name: s.name(object), WithDecryption: aws.Bool(true)})
	if err != nil {
		return nil, 0, s.explain("reading", object, err)
	}
	s.noteSkew(out.ResultMetadata)
	return []byte(aws.ToString(out.Parameter.Value)), out.Parameter.Version, nil
}

func (s *SSM) noteSkew(answer middleware.Metadata) {
	if skew, ok := awsmiddleware.GetAttemptSkew(answer); ok {
		s.mu.Lock()
		s.skew = skew
		s.mu.Unlock()
	}
}

// namesPerCall is how many names GetParameters takes (its API reference).
const namesPerCall = 10

// GetAll reads up to ten parameters with one request. A role whose policy was made before that was allowed reads them one
// at a time; and where a single one is not allowed, AWS refuses the whole request, and the error of that one says which.
func (s *SSM) GetAll(ctx context.Context, objects ...string) (map[string][]byte, error) {
	found := map[string][]byte{}
	objects = slices.Compact(slices.Sorted(slices.Values(objects)))
	for part := range slices.Chunk(objects, namesPerCall) {
		some, err := s.getSome(ctx, part)
		if errors.Is(err, pki.ErrForbidden) {
			some, err = each(ctx, s, part)
		}
		maps.Copy(found, some)
		if err != nil {
			return found, err
		}
	}
	return found, nil
}

// getSome reads as many parameters as one request takes.
func (s *SSM) getSome(ctx context.Context, objects []string) (map[string][]byte, error) {
	var names []string
	for _, object := range objects {
		if err := checkObject(object); err != nil {
			return nil, err
		}
		names = append(names, *s.name(object))
	}
	client, err := s.begin(ctx, "reading", objects[0])
	if err != nil {
		return nil, err
	}
	out, err := client.GetParameters(ctx, &ssm.GetParametersInput{Names: names, WithDecryption: aws.Bool(true)})
	if err != nil {
		return nil, s.explain("reading", strings.Join(objects, ", "), err)
	}
	s.noteSkew(out.ResultMetadata)
	found := map[string][]byte{}
	for _, p := range out.Parameters {
		found[strings.TrimPrefix(aws.ToString(p.Name), s.root+"/")] = []byte(aws.ToString(p.Value))
	}
	return found, nil
}

// Create puts the parameter with Overwrite=false.
func (s *SSM) Create(ctx context.Context, object string, content []byte) error {
	_, err := s.put(ctx, "creating", object, content, false)
	return err
}

// Put puts the parameter with Overwrite=true.
func (s *SSM) Put(ctx context.Context, object string, content []byte) error {
	_, err := s.put(ctx, "writing", object, content, true)
	return err
}

// Swap compares, puts the parameter with Overwrite=true, and looks whether the new version follows the one that it has
// compared.
func (s *SSM) Swap(ctx context.Context, object string, old, content []byte) error {
	have, version, err := s.get(ctx, object)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, old) {
		return changed(s, object)
	}
	written, err := s.put(ctx, "replacing", object, content, true)
	if err != nil {
		return err
	}
	if written != version+1 {
		return changed(s, object)
	}
	return nil
}

// List reads the names only: what is secret stays encrypted.
func (s *SSM) List(ctx context.Context, dir string) ([]string, error) {
	client, err := s.begin(ctx, "listing", strings.TrimSuffix(dir, "/"))
	if err != nil {
		return nil, err
	}
	var objects []string
	pages := ssm.NewGetParametersByPathPaginator(client, &ssm.GetParametersByPathInput{Path: s.name(strings.TrimSuffix(dir, "/")), Recursive: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, s.explain("listing", dir, err)
		}
		for _, p := range page.Parameters {
			objects = append(objects, strings.TrimPrefix(aws.ToString(p.Name), s.root+"/"))
		}
	}
	slices.Sort(objects)
	return objects, nil
}

// Delete deletes the parameter with all its versions.
func (s *SSM) Delete(ctx context.Context, object string) error {
	client, err := s.begin(ctx, "deleting", object)
	if err != nil {
		return err
	}
	if _, err := client.DeleteParameter(ctx, &ssm.DeleteParameterInput{Name: s.name(object)}); err != nil {
		return s.explain("deleting", object, err)
	}
	return nil
}

// put returns the version that it has written.
func (s *SSM) put(ctx context.Context, doing, object string, content []byte, overwrite bool) (int64, error) {
	client, err := s.begin(ctx, doing, object)
	if err != nil {
		return 0, err
	}
	in := &ssm.PutParameterInput{
		Name: s.name(object), Value: aws.String(string(content)), Type: types.ParameterTypeString, Overwrite: aws.Bool(overwrite),
	}
	if !public(object) {
		key, err := s.Key(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s %s in %s: %w", doing, object, s, err)
		}
		if in.Type = types.ParameterTypeSecureString; key != DefaultKey {
			in.KeyId = &key
		}
	}
	out, err := client.PutParameter(ctx, in)
	if err != nil {
		return 0, s.explain(doing, object, err)
	}
	return out.Version, nil
}

func (s *SSM) begin(ctx context.Context, doing, object string) (*ssm.Client, error) {
	if err := checkObject(object); err != nil {
		return nil, err
	}
	client, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s %s in %s: %w", doing, object, s, err)
	}
	return client, nil
}

// wrongCodes are the codes of requests that fail again when they are repeated.
var wrongCodes = []string{"ValidationException", "ParameterLimitExceeded", "ParameterMaxVersionLimitExceeded", "TooManyUpdates"}

// explain maps an error of the SDK to one of the store's errors. Unknown errors mean unreachable: problems of the
// network, the credentials' service, throttling and faults of the service all may pass.
func (s *SSM) explain(doing, object string, err error) error {
	var missing *types.ParameterNotFound
	var exists *types.ParameterAlreadyExists
	code, what := "", awserr.KindOf(err)
	if api := smithy.APIError(nil); errors.As(err, &api) {
		// Drop the SDK's wrapping: its request id makes the text of each attempt differ, and callers that wait log each text
		// once.
		code, err = api.ErrorCode(), api
	}
	kind := pki.ErrUnreachable
	switch {
	case errors.As(err, &missing):
		kind = pki.ErrNotFound
	case errors.As(err, &exists):
		kind = pki.ErrExists
	case what == awserr.Denied, what == awserr.Unknown, code == "InvalidKeyId", errors.Is(err, awsconfig.ErrNoRole):
		kind = pki.ErrForbidden
	case what == awserr.Clock:
		kind = pki.ErrClock // the SDK has retried with the service's time already
	case slices.Contains(wrongCodes, code):
		return fmt.Errorf("%s %s in %s: %w", doing, object, s, err)
	}
	if what == awserr.Throttled {
		kind = pki.ErrBusy
	}
	return outOfReach(err, fmt.Errorf("%s %s in %s: %w (%w)", doing, object, s, kind, err))
}

// outOfReach adds the reason to the error if the store was not even called.
func outOfReach(err, told error) error {
	if errors.Is(err, awsconfig.ErrMetadata) {
		return reason.With(reason.Metadata, told)
	}
	return told
}
