package awsfake

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The types and tiers of parameters.
const (
	ParameterString = "String"
	ParameterList   = "StringList"
	ParameterSecure = "SecureString"
	TierStandard    = "Standard"
	TierAdvanced    = "Advanced"
	tierIntelligent = "Intelligent-Tiering"
)

// The limits of Parameter Store that are held (API reference, PutParameter; "AWS Systems Manager endpoints and
// quotas"). A KB is 1024 bytes, and bytes are counted where AWS says both bytes and characters.
const (
	standardValue    = 4 << 10
	advancedValue    = 8 << 10
	standardCount    = 10_000
	advancedCount    = 100_000
	keptParameters   = 100
	parameterBatch   = 10
	parameterReads   = 40 // a second: GetParameter, GetParameters and GetParametersByPath together
	parameterWrites  = 3  // a second: PutParameter
	defaultSecureKey = "alias/aws/ssm"
)

// Parameter is one version of a parameter of Systems Manager's Parameter Store.
type Parameter struct {
	Name, Type, Value string
	// Key is the KMS key of a SecureString; empty is the account's own, which everyone may use who may use
	// Parameter Store.
	Key     string
	Tier    string
	Pattern string
	Version int
	Tags    map[string]string
	// Modified is when this version was made, User the ARN of who made it.
	Modified time.Time
	User     string
	// DataType is text or aws:ec2:image: the value is an image that there was when the version was made. Empty is
	// text.
	DataType, Description string
}

// SSM is the account's Parameter Store. Its exported methods may be called by several goroutines; they are no
// API calls: nothing counts, delays or refuses them but the store's own rules.
//
// Held: names, sizes and tiers, types that do not change, patterns, versions (a hundred) and selectors
// ("name:3"), ciphertext unless WithDecryption is asked for, the permission on a KMS key of one's own, pages of
// GetParametersByPath that are short or empty though more follow ("returned on a best-effort basis"), and the
// default throughput. A name may be an ARN where the API says so. Labels, history, and the data type aws:ec2:image,
// which is checked after the answer. Not modelled, and refused: policies, the filters of GetParametersByPath, other
// data types, and parameters of other accounts.
type SSM struct {
	account  *Account
	region   string
	versions map[string][]Parameter
	keys     map[string]string
	// labels are versions by name and label; validating are the names whose image is being looked for.
	labels     map[string]map[string]int
	validating map[string]bool
	validation time.Duration
}

func newSSM(a *Account, region string, validation time.Duration) *SSM {
	return &SSM{
		account: a, region: region, versions: map[string][]Parameter{}, keys: map[string]string{},
		labels: map[string]map[string]int{}, validating: map[string]bool{}, validation: validation,
	}
}

func (s *SSM) now() time.Time { return s.account.regional.agenda.now }

// Put makes a parameter, or another version of it where overwrite is true; Type is String where none is given.
func (s *SSM) Put(p Parameter, overwrite bool) (version int, err error) {
	if p.Type == "" {
		p.Type = ParameterString
	}
	s.account.locked(func() {
		var made Parameter
		made, err = s.put(p, overwrite)
		version = made.Version
	})
	return version, err
}

// Parameter is the last version of a parameter, decrypted. False: there is none.
func (s *SSM) Parameter(name string) (p Parameter, ok bool) {
	s.account.locked(func() {
		if list := s.versions[name]; len(list) > 0 {
			p, ok = list[len(list)-1], true
			p.Tags = maps.Clone(p.Tags)
		}
	})
	return p, ok
}

// Names lists the parameters below a path ("/": all of them), in order.
func (s *SSM) Names(path string) (names []string) {
	s.account.locked(func() { names = s.below(path) })
	return names
}

// AddKey makes a KMS key that SecureStrings can name, by its alias ("alias/demo"), and returns its ARN.
func (s *SSM) AddKey(alias string) (arn string) {
	s.account.locked(func() {
		if s.keys[alias] == "" {
			s.keys[alias] = "arn:aws:kms:" + s.region + ":" + owner + ":key/" + uuidOf("key "+alias, 0)
		}
		arn = s.keys[alias]
	})
	return arn
}

// keyARN is the key that a KeyId means: an alias, its ARN, or a key's id or ARN. Empty: there is none.
func (s *SSM) keyARN(id string) string {
	_, alias, isARN := strings.Cut(id, ":"+owner+":alias/")
	for _, name := range sortedKeys(s.keys) {
		arn := s.keys[name]
		if name == id || isARN && name == "alias/"+alias || arn == id || strings.HasSuffix(arn, ":key/"+id) {
			return arn
		}
	}
	return ""
}

// put checks and adds a version.
func (s *SSM) put(p Parameter, overwrite bool) (Parameter, error) {
	p.Name = strings.TrimSpace(p.Name)
	if err := s.checkName(p.Name); err != nil {
		return p, err
	}
	old := s.versions[p.Name]
	switch {
	case s.validating[p.Name]:
		return p, refuse("TooManyUpdates", "There are concurrent updates for a resource that supports one update at a time.")
	case len(old) > 0 && !overwrite:
		return p, refuse("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
	case overwrite && len(p.Tags) > 0:
		return p, invalidParameter("Invalid request: tags and overwrite can't be used together.")
	case len(old) > 0:
		last := old[len(old)-1]
		if p.Type != "" && p.Type != last.Type {
			return p, refuse("HierarchyTypeMismatchException", "Parameter Store doesn't support changing a parameter type in a hierarchy: %s is a %s.", p.Name, last.Type)
		}
		p = inherit(p, last)
	}
	if err := s.check(&p); err != nil {
		return p, err
	}
	if err := s.room(old); err != nil {
		return p, err
	}
	p.Version, p.Modified = 1, s.now()
	if len(old) > 0 {
		p.Version = old[len(old)-1].Version + 1
	}
	s.add(p)
	return p, nil
}

// inherit fills in what an update does not say.
func inherit(p, last Parameter) Parameter {
	p.Type, p.Tags = last.Type, last.Tags
	if p.Key == "" {
		p.Key = last.Key
	}
	if p.Pattern == "" {
		p.Pattern = last.Pattern
	}
	if p.Tier == "" {
		p.Tier = last.Tier
	} else if p.Tier == TierStandard && last.Tier == TierAdvanced {
		p.Tier = "downgraded"
	}
	return p
}

// check refuses what a parameter must not be, and settles its tier.
func (s *SSM) check(p *Parameter) error {
	standard, advanced := s.tiers()
	switch {
	case p.Type == "":
		return invalidParameter("A parameter type is required when you create a parameter.")
	case p.Type != ParameterString && p.Type != ParameterList && p.Type != ParameterSecure:
		return invalidParameter("1 validation error detected: Value '%s' at 'type' failed to satisfy constraint: Member must satisfy enum value set: [SecureString, StringList, String]", p.Type)
	case p.Value == "":
		return invalidParameter("1 validation error detected: Value '' at 'value' failed to satisfy constraint: Member must have length greater than or equal to 1.")
	case nested.MatchString(p.Value):
		return invalidParameter("Parameter value can't nest another parameter. Do not use \"{{}}\" in the value.")
	case p.Key != "" && p.Type != ParameterSecure:
		return invalidParameter("KeyId is required for SecureString type parameter only.")
	case p.Key != "" && p.Key != defaultSecureKey && s.keyARN(p.Key) == "":
		return refuse("InvalidKeyId", "Invalid keyId %s", p.Key)
	case p.Tier == "downgraded":
		return invalidParameter("This parameter uses the advanced-parameter tier. You can't downgrade a parameter from the advanced-parameter tier to the standard-parameter tier. If necessary, you can delete the advanced parameter and recreate it as a standard parameter.")
	case p.Tier == tierIntelligent && (len(p.Value) > standardValue || standard >= standardCount):
		p.Tier = TierAdvanced
	case p.Tier == "" || p.Tier == tierIntelligent:
		p.Tier = TierStandard
	case p.Tier != TierStandard && p.Tier != TierAdvanced:
		return invalidParameter("1 validation error detected: Value '%s' at 'tier' failed to satisfy constraint: Member must satisfy enum value set: [Advanced, Intelligent-Tiering, Standard]", p.Tier)
	}
	if err := matchPattern(*p); err != nil {
		return err
	}
	if err := checkDataType(p); err != nil {
		return err
	}
	isNew := len(s.versions[p.Name]) == 0
	switch {
	case p.Tier == TierStandard && len(p.Value) > standardValue:
		return invalidParameter("Standard tier parameters support a maximum parameter value of %d characters. To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier. For more information, see https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html", standardValue)
	case len(p.Value) > advancedValue:
		return invalidParameter("Advanced tier parameters support a maximum parameter value of %d characters.", advancedValue)
	case isNew && p.Tier == TierStandard && standard >= standardCount, isNew && advanced >= advancedCount:
		return refuse("ParameterLimitExceeded", "You have exceeded the number of parameters for this Amazon Web Services account. Delete one or more parameters and try again.")
	}
	return nil
}

// nested is what must not be in a value (API reference, PutParameter, Value).
var nested = regexp.MustCompile(`(?s)\{\{.*\}\}`)

func matchPattern(p Parameter) error {
	if p.Pattern == "" {
		return nil
	}
	pattern, err := regexp.Compile(`\A(?:` + p.Pattern + `)\z`)
	if err != nil {
		return refuse("InvalidAllowedPatternException", "The request doesn't meet the regular expression requirement: %v", err)
	}
	if !pattern.MatchString(p.Value) {
		return refuse("ParameterPatternMismatchException", "Parameter value, cannot be validated against allowedPattern: %s", p.Pattern)
	}
	return nil
}

// tiers counts the parameters of each tier.
func (s *SSM) tiers() (standard, advanced int) {
	for _, list := range s.versions {
		if list[len(list)-1].Tier == TierAdvanced {
			advanced++
		} else {
			standard++
		}
	}
	return standard, advanced
}

// find is the version that a name with or without a selector means.
func (s *SSM) find(name string) (p Parameter, selector string, err error) {
	name, selector = s.split(name)
	list := s.versions[name]
	if len(list) == 0 {
		return p, "", refuse("ParameterNotFound", "Parameter %s not found.", name)
	}
	if selector == "" {
		return list[len(list)-1], "", nil
	}
	version, err := strconv.Atoi(selector)
	i := slices.IndexFunc(list, func(p Parameter) bool { return p.Version == version })
	switch {
	case err != nil && s.labels[name][selector] > 0:
		labelled := slices.IndexFunc(list, func(p Parameter) bool { return p.Version == s.labels[name][selector] })
		return list[labelled], ":" + selector, nil
	case err != nil:
		return p, "", refuse("ParameterVersionNotFound", "Systems Manager could not find label %s for parameter %s. Verify the label and try again.", selector, name)
	case i < 0:
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

// ciphertext stands for an encrypted value: nobody can read the value from it.
func ciphertext(p Parameter) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", p.Name, p.Version, p.Value))
	return "AQICAHh" + base64.StdEncoding.EncodeToString(sum[:])
}

func invalidParameter(format string, args ...any) error {
	return refuse("ValidationException", format, args...)
}
