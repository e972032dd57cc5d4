package store

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// statement is a statement of an IAM policy.
type statement struct {
	Sid      string
	Effect   string
	Action   []string
	Resource []string
	// Condition has the values of keys by operator.
	Condition map[string]map[string][]string `json:",omitempty"`
}

// overwriting is the condition that a parameter may be overwritten. The form that is documented is a denial with it, and
// says nothing of the key where a call does not overwrite ("Preventing access to Parameter Store API operations", Systems
// Manager user guide).
var overwriting = map[string]map[string][]string{"StringEquals": {"ssm:Overwrite": {"true"}}}

// reading is one parameter, and several by their names, each of which must be allowed ("Actions, resources, and condition keys
// for AWS Systems Manager", Service Authorization Reference); writing is one.
var (
	reading = []string{"ssm:GetParameter", "ssm:GetParameters"}
	writing = []string{"ssm:PutParameter"}
)

// parameters begins the ARNs of parameters, in every region and account.
const parameters = "arn:aws:ssm:*:*:parameter"

// anyKey are the keys of every region and account, throughParameterStore the values of kms:ViaService for Parameter Store
// in every region and partition.
const (
	anyKey                = "arn:aws:kms:*:*:key/*"
	throughParameterStore = "ssm.*.amazonaws.com*"
)

// Policy returns the IAM policy document that allows an instance role the given access to a store of the kind ssm, and
// nothing else. It names no region and no account. What is created once, it denies to change or to delete.
//
// key is the customer key of the secrets, an ARN or an alias. With it nobody decrypts a parameter who has no permission
// for the key, and the role gets that for its own objects alone, through Parameter Store. Empty is DefaultKey, whose key
// policy lets everyone decrypt who may read the parameter: so the policy also denies reading the other secrets, of every
// store beside this one, whatever else is attached to the role later. Of a directory that the role reads, only other
// names are denied: IAM cannot except this store from all.
func Policy(at Location, access pki.Access, key string) ([]byte, error) {
	if at.Kind != KindSSM {
		return nil, fmt.Errorf("store %s: only one in %s has an IAM policy; a directory has modes", at, KindSSM)
	}
	var statements []statement
	for _, part := range []struct {
		sid     string
		actions []string
		objects []string
	}{{"ReadSecrets", reading, access.Read}, {"Write", writing, access.Write}, {"CreateRecords", writing, access.Create}} {
		if len(part.objects) > 0 {
			statements = append(statements, statement{Sid: part.sid, Effect: "Allow", Action: part.actions, Resource: arns(at, part.objects)})
		}
	}
	if len(access.Create) > 0 {
		records := arns(at, access.Create)
		statements = append(statements,
			statement{Sid: "ChangeNoRecord", Effect: "Deny", Action: []string{"ssm:PutParameter"}, Resource: records, Condition: overwriting},
			statement{Sid: "KeepRecords", Effect: "Deny", Action: []string{"ssm:DeleteParameter", "ssm:DeleteParameters"}, Resource: records})
	}
	if key != "" {
		statements = append(statements, keyStatements(at, access, key)...)
	}
	data, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", append(append([]statement{}, statements...), denials(at, access)...)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy of %s: %w", at, err)
	}
	return append(data, '\n'), nil
}

// arns are the parameters of objects, of which those that end in "/" stand for all below. What another one stands for is left
// out: a policy has at most 10,240 characters, and a template's request 51,200.
func arns(at Location, objects []string) (list []string) {
	for _, object := range objects {
		if slices.ContainsFunc(objects, func(all string) bool {
			return strings.HasSuffix(all, "/") && object != all && strings.HasPrefix(object, all)
		}) {
			continue
		}
		if strings.HasSuffix(object, "/") {
			object += "*"
		}
		list = append(list, parameters+at.Root+"/"+object)
	}
	return list
}

// keyStatements allow the use of the customer key. Parameter Store calls KMS in its caller's name, and the encryption
// context of every value is its parameter's ARN; a standard parameter needs kms:Encrypt, an advanced one, which the
// account's default tier can make of a large value, kms:GenerateDataKey ("AWS KMS encryption for AWS Systems Manager
// Parameter Store SecureString parameters"). IAM knows a key by its ARN, or by the aliases that it has.
func keyStatements(at Location, access pki.Access, key string) (statements []statement) {
	for _, part := range []struct {
		sid     string
		actions []string
		objects []string
	}{{"DecryptSecrets", []string{"kms:Decrypt"}, access.Read}, {"EncryptSecrets", []string{"kms:Encrypt", "kms:GenerateDataKey"}, slices.Concat(access.Write, access.Create)}} {
		secret := slices.DeleteFunc(slices.Clone(part.objects), public)
		if len(secret) == 0 {
			continue
		}
		s := statement{Sid: part.sid, Effect: "Allow", Action: part.actions, Resource: []string{key}, Condition: map[string]map[string][]string{
			"StringLike": {"kms:ViaService": {throughParameterStore}, "kms:EncryptionContext:PARAMETER_ARN": arns(at, secret)},
		}}
		if strings.HasPrefix(key, "alias/") {
			s.Resource = []string{anyKey}
			s.Condition["ForAnyValue:StringEquals"] = map[string][]string{"kms:ResourceAliases": {key}}
		}
		statements = append(statements, s)
	}
	return statements
}

// denials are the statements that keep a role from the secrets that it does not need.
func denials(at Location, access pki.Access) []statement {
	above, everywhere := path.Dir(at.Root), at.Root
	if above != "/" { // another cluster's store is beside this one
		everywhere = above + "/*"
	}
	var secrets []string
	for _, secret := range pki.Secrets() {
		if access.MayRead(secret) {
			continue
		}
		name := secret + "*"
		if dir := path.Dir(strings.TrimSuffix(secret, "/")) + "/"; !access.MayRead(dir) {
			name = dir + "*"
		}
		secrets = append(secrets, parameters+everywhere+"/"+name)
	}
	slices.Sort(secrets)
	var statements []statement
	if len(secrets) > 0 {
		statements = append(statements, statement{Sid: "NotOthersSecrets", Effect: "Deny", Action: []string{"ssm:GetParameter*"}, Resource: slices.Compact(secrets)})
	}
	// Who may read a path may read all below it, whatever is denied there (GetParametersByPath, API reference).
	top, _, _ := strings.Cut(at.Root[1:], "/")
	top = parameters + "/" + top
	return append(statements, statement{Sid: "NotByPath", Effect: "Deny", Action: []string{"ssm:GetParametersByPath"}, Resource: []string{parameters + "/", top, top + "/*"}})
}
