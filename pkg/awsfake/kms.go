package awsfake

import (
	"encoding/json"
	"slices"
	"strings"
)

// The states of a key (KMS API reference, KeyMetadata).
const (
	KeyEnabled  = "Enabled"
	KeyDisabled = "Disabled"
	KeyDeletion = "PendingDeletion"
)

// managedKey is the alias of the key that Parameter Store uses where none is named. Its key policy lets everyone in the
// account use it through Parameter Store.
const managedKey = "alias/aws/ssm"

// vault has the KMS keys of one region. No call of KMS is modelled: only what Parameter Store does with a key in its
// caller's name, and what stacks make. Every caller needs the permission of both services, a key policy that does not
// name the account's root lets nobody in, and an alias of a key counts for permissions as the caller finds it.
type vault struct {
	region  string
	keys    map[string]*kmsKey
	aliases map[string]string
}

// kmsKey is a key. Shared keys are those of an AWS service.
type kmsKey struct {
	arn, state      string
	shared, rotates bool
}

// sealed says under which key, and in what context, a value is encrypted.
type sealed struct{ key, context string }

func newVault(region string) *vault {
	v := &vault{region: region, keys: map[string]*kmsKey{}, aliases: map[string]string{}}
	v.add(managedKey).shared = true
	return v
}

// add makes a key, with an alias if that is not empty.
func (v *vault) add(alias string) *kmsKey {
	k := &kmsKey{arn: "arn:aws:kms:" + v.region + ":" + owner + ":key/" + uuidOf("key "+alias, len(v.keys)), state: KeyEnabled}
	v.keys[k.arn] = k
	if alias != "" {
		v.aliases[alias] = k.arn
	}
	return k
}

// find returns a key by its alias, the alias's ARN, its ID or its ARN; nil if it does not exist.
func (v *vault) find(id string) *kmsKey {
	if _, alias, ok := strings.Cut(id, ":"+owner+":alias/"); ok {
		id = "alias/" + alias
	}
	if arn := v.aliases[id]; arn != "" {
		id = arn
	}
	if !strings.HasPrefix(id, "arn:") {
		id = "arn:aws:kms:" + v.region + ":" + owner + ":key/" + id
	}
	return v.keys[id]
}

// aliasesOf returns a key's aliases.
func (v *vault) aliasesOf(k *kmsKey) (names []string) {
	for _, alias := range sortedKeys(v.aliases) {
		if v.aliases[alias] == k.arn {
			names = append(names, alias)
		}
	}
	return names
}

// need is the permission of a call that Parameter Store makes with a key in its caller's name.
func (v *vault) need(k *kmsKey, action, context string) need {
	return need{action: "kms:" + action, arn: k.arn, context: map[string][]string{
		"kms:CallerAccount": {owner}, "kms:EncryptionAlgorithm": {"SYMMETRIC_DEFAULT"},
		"kms:ViaService":                      {"ssm." + v.region + ".amazonaws.com"},
		"kms:EncryptionContext:PARAMETER_ARN": {context},
		"kms:EncryptionContextKeys":           {"PARAMETER_ARN"},
		"kms:ResourceAliases":                 v.aliasesOf(k),
	}}
}

// use is a call of KMS by Parameter Store in its caller's name ("AWS KMS encryption for AWS Systems Manager Parameter
// Store SecureString parameters"): the condition keys are the service's name, the encryption context, and the key's
// aliases. The errors are those of Parameter Store.
func (v *vault) use(c *call, action, id, context string) (*kmsKey, error) {
	k := v.find(id)
	if k == nil {
		return nil, refuse("InvalidKeyId", "Key '%s' does not exist (Service: AWSKMS; Error Code: NotFoundException)", id)
	}
	if !k.shared && c != nil && c.Caller != nil {
		err := permit(c, v.need(k, action, context))
		if err != nil {
			return nil, err
		}
	}
	switch k.state {
	case KeyDisabled:
		return nil, refuse("InvalidKeyId", "%s is disabled. (Service: AWSKMS; Error Code: DisabledException)", k.arn)
	case KeyDeletion:
		return nil, refuse("InvalidKeyId", "%s is pending deletion. (Service: AWSKMS; Error Code: KMSInvalidStateException)", k.arn)
	}
	return k, nil
}

// seal encrypts a version of a secret parameter.
func (s *SSM) seal(c *call, p *Parameter) error {
	if p.Type != ParameterSecure {
		if p.Key != "" {
			return invalidParameter("KeyId is for parameters of the type SecureString, and %s is a %s", p.Name, p.Type)
		}
		return nil
	}
	if p.Key == "" {
		p.Key = managedKey // whatever the version before had
	}
	k, err := s.vault.use(c, "Encrypt", p.Key, s.arn(p.Name))
	if err != nil {
		return err
	}
	p.sealed = sealed{k.arn, s.arn(p.Name)}
	return nil
}

// open decrypts a version of a secret parameter.
func (s *SSM) open(c *call, p Parameter) error {
	if p.Type != ParameterSecure {
		return nil
	}
	if _, err := s.vault.use(c, "Decrypt", p.sealed.key, s.arn(p.Name)); err != nil {
		return err
	}
	if p.sealed.context != s.arn(p.Name) {
		return refuse("InternalServerError", "the value of %s is not of this encryption context (Service: AWSKMS; Error Code: InvalidCiphertextException)", p.Name)
	}
	return nil
}

// AddKey makes a KMS key with this alias ("alias/demo"), which parameters and copies of images can name, and returns its
// ARN. The key policy is KMS's default one: IAM policies decide.
func (s *SSM) AddKey(alias string) (arn string) {
	s.account.locked(func() {
		k := s.vault.find(alias)
		if k == nil {
			k = s.vault.add(alias)
		}
		arn = k.arn
	})
	return arn
}

// SetKeyState sets the state of a key that exists.
func (s *SSM) SetKeyState(id, state string) {
	s.account.locked(func() { s.vault.find(id).state = state })
}

// KeyState returns a key's state and whether KMS rotates it every year; "" if it does not exist.
func (s *SSM) KeyState(id string) (state string, rotates bool) {
	s.account.locked(func() {
		if k := s.vault.find(id); k != nil {
			state, rotates = k.state, k.rotates
		}
	})
	return state, rotates
}

// Exchange exchanges the ciphertexts of two parameters, as somebody could who writes to Parameter Store's own disks.
func (s *SSM) Exchange(one, other string) {
	s.account.locked(func() {
		a, b := &s.versions[one][len(s.versions[one])-1], &s.versions[other][len(s.versions[other])-1]
		a.Value, b.Value, a.sealed, b.sealed = b.Value, a.Value, b.sealed, a.sealed
	})
}

type keyShape struct {
	Text    string `cfn:"Description"`
	Rotates bool   `cfn:"EnableKeyRotation"`
	Policy  any    `cfn:"KeyPolicy,required"`
	Tags    any    `cfn:"Tags"`
}

type aliasShape struct {
	Name string `cfn:"AliasName,required" update:"replace"`
	Key  string `cfn:"TargetKeyId,required"`
}

// checkKeyPolicy takes one policy: the account's root, for whom IAM policies then decide, and nobody else. A wider one
// would need what awsfake does not model, and one without root locks everybody out.
func checkKeyPolicy(v any) error {
	raw, err := json.Marshal(v)
	var p struct {
		Version   string
		Statement []struct {
			Sid, Effect      string
			Principal        map[string]texts
			Action, Resource texts
		}
	}
	if err == nil {
		err = strictly(raw, &p)
	}
	if err != nil {
		return refuse("MalformedPolicyDocumentException", "%v", err)
	}
	for _, s := range p.Statement {
		if s.Effect != "Allow" || !slices.Equal(s.Resource, texts{"*"}) || !slices.Equal(s.Action, texts{"kms:*"}) ||
			len(s.Principal) != 1 || !slices.Equal(s.Principal["AWS"], texts{"arn:aws:iam::" + owner + ":root"}) {
			return refuse("MalformedPolicyDocumentException", "awsfake models key policies that allow kms:* to the account's root, and nothing else: %s", raw)
		}
	}
	if len(p.Statement) == 0 {
		return refuse("MalformedPolicyDocumentException", "The new key policy will not allow you to update the key policy in the future.")
	}
	return nil
}

func (p *provision) vault() *vault { return p.cf.account.place(HomeRegion).ssm.vault }

func keyKinds() map[string]resourceKind {
	return map[string]resourceKind{
		"AWS::KMS::Key": kind[keyShape]{
			attributes: []string{"Arn", "KeyId"},
			make: func(p *provision, want *keyShape) error {
				if err := checkKeyPolicy(want.Policy); err != nil {
					return err
				}
				k := p.vault().add("")
				k.rotates = want.Rotates
				id := k.arn[strings.LastIndexByte(k.arn, '/')+1:]
				p.setID(id, "Arn", k.arn, "KeyId", id)
				return nil
			},
			change: func(p *provision, want, _ *keyShape) error {
				p.vault().find(p.physical).rotates = want.Rotates
				return checkKeyPolicy(want.Policy)
			},
			drop: func(p *provision, _ *keyShape) (bool, error) {
				p.vault().find(p.physical).state = KeyDeletion
				return true, nil
			},
		},
		"AWS::KMS::Alias": kind[aliasShape]{
			make: func(p *provision, want *aliasShape) error {
				if p.vault().aliases[want.Name] != "" {
					return refuse("AlreadyExistsException", "An alias with the name arn:aws:kms:%s:%s:%s already exists", HomeRegion, owner, want.Name)
				}
				p.setID(want.Name)
				return p.giveAlias(want)
			},
			change: func(p *provision, want, _ *aliasShape) error { return p.giveAlias(want) },
			drop: func(p *provision, was *aliasShape) (bool, error) {
				delete(p.vault().aliases, was.Name)
				return true, nil
			},
		},
	}
}

// giveAlias gives a key its alias.
func (p *provision) giveAlias(want *aliasShape) error {
	if !strings.HasPrefix(want.Name, "alias/") || strings.HasPrefix(want.Name, "alias/aws/") {
		return refuse("NotAuthorizedException", "%s is no alias that a customer can make", want.Name)
	}
	k := p.vault().find(want.Key)
	if k == nil {
		return refuse("NotFoundException", "Key '%s' does not exist", want.Key)
	}
	p.vault().aliases[want.Name] = k.arn
	return nil
}
