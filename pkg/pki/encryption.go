package pki

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// EncryptionKeySize is the size of a secretbox key in bytes.
const EncryptionKeySize = 32

// NewEncryptionKey makes the content of EncryptionKey: a random key in base64, and a newline.
func NewEncryptionKey() []byte {
	return []byte(base64.StdEncoding.EncodeToString(randomKey()) + "\n")
}

func randomKey() []byte {
	key := make([]byte, EncryptionKeySize)
	_, _ = rand.Read(key) // never fails: see its documentation
	return key
}

// The steps of a rotation of the encryption key: what the machines were told last.
const (
	// StepNone: there is one key, and no rotation under way.
	StepNone = "none"
	// StepAdded: the old key encrypts, and the new one is there, so that every API server can read what another one will
	// have written with it.
	StepAdded = "added"
	// StepUsed: the new key encrypts. What the old one has encrypted is still read.
	StepUsed = "used"
)

// EncryptionKeys is the object EncryptionKey: the keys that decrypt, of which the first encrypts. While there is one, the
// object is that key in base64. During a rotation it is JSON, so that one write changes keys, step and time together:
// {"keys":["…","…"],"step":"added","since":"2026-01-02T03:04:05Z"}. Machines older than rotations refuse that, and keep
// what they have.
type EncryptionKeys struct {
	Keys [][]byte
	Step string
	// Since is when the step was taken; zero for StepNone.
	Since time.Time
}

// encryptionFile is EncryptionKeys in JSON.
type encryptionFile struct {
	Keys  [][]byte  `json:"keys"`
	Step  string    `json:"step"`
	Since time.Time `json:"since"`
}

// ParseEncryptionKeys parses the object. Its errors never contain a key.
func ParseEncryptionKeys(data []byte) (EncryptionKeys, error) {
	if text := bytes.TrimSpace(data); !bytes.HasPrefix(text, []byte("{")) {
		key, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil || len(key) != EncryptionKeySize {
			return EncryptionKeys{}, fmt.Errorf("reading an encryption key: it is not %d bytes in base64", EncryptionKeySize)
		}
		return EncryptionKeys{Keys: [][]byte{key}, Step: StepNone}, nil
	}
	var file encryptionFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return EncryptionKeys{}, errors.New(`reading the encryption keys: they are not {"keys":[…],"step":…,"since":…}`)
	}
	k := EncryptionKeys(file)
	if len(k.Keys) != 2 || len(k.Keys[0]) != EncryptionKeySize || len(k.Keys[1]) != EncryptionKeySize || bytes.Equal(k.Keys[0], k.Keys[1]) {
		return EncryptionKeys{}, fmt.Errorf("reading the encryption keys: a rotation has two keys, each %d bytes", EncryptionKeySize)
	}
	if k.Step != StepAdded && k.Step != StepUsed || k.Since.IsZero() {
		return EncryptionKeys{}, fmt.Errorf("reading the encryption keys: the step %q is neither %s nor %s, or has no time", k.Step, StepAdded, StepUsed)
	}
	return k, nil
}

// Marshal encodes the object.
func (k EncryptionKeys) Marshal() ([]byte, error) {
	if len(k.Keys) == 1 {
		return []byte(base64.StdEncoding.EncodeToString(k.Keys[0]) + "\n"), nil
	}
	data, err := json.Marshal(encryptionFile{k.Keys, k.Step, k.Since.UTC().Truncate(time.Second)})
	if err != nil {
		return nil, fmt.Errorf("encoding the encryption keys: %w", err)
	}
	return append(data, '\n'), nil
}

// Next returns the keys of the next step of a rotation, which begins with a new key.
func (k EncryptionKeys) Next(now time.Time) EncryptionKeys {
	switch k.Step {
	case StepAdded:
		return EncryptionKeys{[][]byte{k.Keys[1], k.Keys[0]}, StepUsed, now}
	case StepUsed:
		return EncryptionKeys{Keys: [][]byte{k.Keys[0]}, Step: StepNone}
	}
	return EncryptionKeys{[][]byte{k.Keys[0], randomKey()}, StepAdded, now}
}

// Names returns the names of the keys, in their order. They say nothing of the keys.
func (k EncryptionKeys) Names() []string {
	var names []string
	for _, key := range k.Keys {
		sum := sha256.Sum256(key)
		names = append(names, "key-"+hex.EncodeToString(sum[:4]))
	}
	return names
}

// encryptionConfig is an EncryptionConfiguration (apiserver.config.k8s.io/v1).
//
// It uses secretbox (XSalsa20 and Poly1305) and not aescbc: altered data is rejected instead of decrypted, and
// Kubernetes itself calls aescbc weak for its padding oracle. aesgcm has a random nonce of 96 bits, so that its key would
// have to be replaced every 200,000 writes. kms needs another daemon. "identity" is left out: nothing was ever stored
// unencrypted, so unencrypted data is forged.
const (
	encryptionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources:
      - secrets
    providers:
      - secretbox:
          keys:
`
	encryptionConfigKey = `            - name: NAME
              secret: SECRET
`
)

// EncryptionConfig renders the file for --encryption-provider-config. A key's name is derived from the key: it prefixes
// everything encrypted with it, and two keys must never share a name.
func EncryptionConfig(k EncryptionKeys) ([]byte, error) {
	if len(k.Keys) == 0 {
		return nil, errors.New("rendering the encryption configuration: there is no key")
	}
	text := encryptionConfig
	for i, name := range k.Names() {
		if len(k.Keys[i]) != EncryptionKeySize {
			return nil, errors.New("rendering the encryption configuration: the key has the wrong size")
		}
		text += strings.NewReplacer("NAME", name, "SECRET", base64.StdEncoding.EncodeToString(k.Keys[i])).Replace(encryptionConfigKey)
	}
	return []byte(text), nil
}
