package awsfake

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The types of parameters.
const (
	ParameterString = "String"
	ParameterSecure = "SecureString"
)

// The data types of parameters.
const (
	dataText  = "text"
	dataImage = "aws:ec2:image"
)

// The modelled limits of Parameter Store (API reference, PutParameter; "AWS Systems Manager endpoints and
// quotas").
const (
	maxParameter    = 4 << 10 // bytes of a value in the standard tier, the only one here
	keptParameters  = 100
	parameterBatch  = 10
	describePage    = 50
	parameterReads  = 40 // a second: GetParameter, GetParameters and GetParametersByPath together
	parameterWrites = 3  // a second: PutParameter
)

// Parameter is one version of a parameter of Systems Manager's Parameter Store.
type Parameter struct {
	Name, Type, Value string
	Version           int
	// Modified is when this version was made, User the ARN of its author.
	Modified time.Time
	User     string
	// DataType is text or aws:ec2:image (the value is the ID of an image that exists); empty is text.
	DataType string
	// Key is the KMS key as the author has named it; empty is Parameter Store's own for a SecureString.
	Key    string
	sealed sealed
}

// SSM is the account's Parameter Store. Several goroutines may call its exported methods, which are not API calls:
// only the store's own rules refuse them.
//
// Modelled: standard parameters, types that do not change, versions (a hundred) and selectors ("name:3"), ciphertext
// unless WithDecryption is set, KMS keys with the caller's permission and the parameter's encryption context, pages that are short or empty though more follow ("returned on a best-effort basis"),
// the default throughput, history, and the data type aws:ec2:image, which is checked after the answer. Other fields
// are refused.
type SSM struct {
	account  *Account
	region   string
	versions map[string][]Parameter
	vault    *vault
}

func newSSM(a *Account, region string) *SSM {
	return &SSM{account: a, region: region, versions: map[string][]Parameter{}, vault: newVault(region)}
}

func (s *SSM) now() time.Time { return s.account.regional.agenda.now }

// Put makes a parameter, or with overwrite another version of it, and returns the version's number; an empty Type is
// String. The error is an *Error with Parameter Store's code.
func (s *SSM) Put(p Parameter, overwrite bool) (version int, err error) {
	if p.Type == "" {
		p.Type = ParameterString
	}
	s.account.locked(func() { version, err = s.put(nil, p, overwrite) })
	return version, err
}

// Parameter returns a parameter's last version, decrypted; false if it does not exist.
func (s *SSM) Parameter(name string) (p Parameter, ok bool) {
	s.account.locked(func() {
		if list := s.versions[name]; len(list) > 0 {
			p, ok = list[len(list)-1], true
		}
	})
	return p, ok
}

// Names returns the names of the parameters below a path ("/" for all), sorted.
func (s *SSM) Names(path string) (names []string) {
	s.account.locked(func() { names = s.below(path) })
	return names
}

// put checks and adds a version, and returns its number. A version with the data type aws:ec2:image is added after the
// call was answered, if the image exists: "the asynchronous validation will fail and the parameter will not be created
// or updated".
func (s *SSM) put(c *call, p Parameter, overwrite bool) (version int, err error) {
	old := s.versions[p.Name]
	switch {
	case len(old) > 0 && !overwrite:
		return 0, refuse("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	case len(old) > 0 && p.Type == "":
		p.Type = old[0].Type
	}
	if p.DataType == "" {
		p.DataType = dataText
	}
	if err := p.check(); err != nil {
		return 0, err
	}
	p.Version, p.Modified = 1, s.now()
	if len(old) > 0 {
		if p.Type != old[0].Type {
			return 0, refuse("HierarchyTypeMismatchException", "Parameter Store doesn't support changing a parameter type in a hierarchy: %s is a %s.", p.Name, old[0].Type)
		}
		p.Version = old[len(old)-1].Version + 1
	}
	if err := s.seal(c, &p); err != nil {
		return 0, err
	}
	if p.DataType != dataImage {
		s.keep(p)
		return p.Version, nil
	}
	s.account.regional.agenda.after(0, func() {
		if _, err := s.account.place(s.region).images.launchable(p.Value); err == nil {
			p.Modified = s.now()
			s.keep(p)
		}
	})
	return p.Version, nil
}

// keep stores a version, and drops the oldest one beyond a hundred.
func (s *SSM) keep(p Parameter) {
	list := append(s.versions[p.Name], p)
	if len(list) > keptParameters {
		list = list[1:]
	}
	s.versions[p.Name] = list
}

var (
	parameterName = regexp.MustCompile(`^(/?[a-zA-Z0-9_.-]+|(/[a-zA-Z0-9_.-]+)+)$`)
	// reservedName matches names with a reserved prefix.
	reservedName = regexp.MustCompile(`(?i)^/?(aws|ssm)`)
)

// check validates a parameter. Its texts are not AWS's; moto has those.
func (p Parameter) check() error {
	switch {
	case !parameterName.MatchString(p.Name), reservedName.MatchString(p.Name):
		return invalidParameter("%q can't be the name of a parameter", p.Name)
	case p.Type != ParameterString && p.Type != ParameterSecure:
		return invalidParameter("%s: %q is no type of parameter that awsfake models", p.Name, p.Type)
	case p.Value == "" || len(p.Value) > maxParameter:
		return invalidParameter("%s: a value has 1 to %d bytes, not %d", p.Name, maxParameter, len(p.Value))
	case p.DataType != dataText && p.DataType != dataImage, p.DataType == dataImage && p.Type != ParameterString:
		return invalidParameter("%s: a %s can't have the data type %s", p.Name, p.Type, p.DataType)
	}
	return nil
}

func (s *SSM) arn(name string) string {
	return "arn:aws:ssm:" + s.region + ":" + owner + ":parameter/" + strings.TrimPrefix(name, "/")
}

// find is the version that a name with or without a selector means.
func (s *SSM) find(name string) (p Parameter, selector string, err error) {
	name, selector, selected := strings.Cut(name, ":")
	list := s.versions[name]
	if len(list) == 0 {
		return p, "", refuse("ParameterNotFound", "Parameter %s not found.", name)
	}
	if !selected {
		return list[len(list)-1], "", nil
	}
	version, err := strconv.Atoi(selector)
	i := slices.IndexFunc(list, func(p Parameter) bool { return p.Version == version })
	if err != nil || i < 0 {
		return p, "", refuse("ParameterVersionNotFound", "Systems Manager could not find version %s of %s. Verify the version and try again.", selector, name)
	}
	return list[i], ":" + selector, nil
}

// below lists the names below a path, at any depth, in order.
func (s *SSM) below(path string) []string {
	prefix := strings.TrimSuffix(path, "/") + "/"
	var names []string
	for _, name := range sortedKeys(s.versions) {
		if strings.HasPrefix(name, prefix) || path == "/" {
			names = append(names, name)
		}
	}
	return names
}

// ciphertext returns a stand-in for the encrypted value, from which the value cannot be read.
func ciphertext(p Parameter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", p.Name, p.Version, p.Value))
	return "AQICAHh" + base64.StdEncoding.EncodeToString(sum[:])
}

func invalidParameter(format string, args ...any) error {
	return refuse("ValidationException", format, args...)
}
