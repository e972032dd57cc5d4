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
}

// parameters begins the ARNs of parameters, in every region and account.
const parameters = "arn:aws:ssm:*:*:parameter"

// Policy returns the IAM policy document that allows an instance role the given access to a store of the kind ssm, and
// nothing else. It names no region and no account. SecureStrings are encrypted with the
// account's default key for Parameter Store, whose key policy lets everyone decrypt who may read the parameter: so the
// policy also denies reading the other secrets, of every store beside this one, whatever else is attached to the role
// later. Of a directory that the role reads, only other names are denied: IAM cannot except this store from all.
func Policy(at Location, access pki.Access) ([]byte, error) {
	if at.Kind != KindSSM {
		return nil, fmt.Errorf("store %s: only one in %s has an IAM policy; a directory has modes", at, KindSSM)
	}
	var statements []statement
	for _, part := range []struct {
		sid, action string
		objects     []string
	}{{"ReadSecrets", "ssm:GetParameter", access.Read}, {"RenewTheToken", "ssm:PutParameter", access.Write}} {
		if len(part.objects) == 0 {
			continue
		}
		s := statement{Sid: part.sid, Effect: "Allow", Action: []string{part.action}}
		for _, object := range part.objects {
			if strings.HasSuffix(object, "/") {
				object += "*"
			}
			s.Resource = append(s.Resource, parameters+at.Root+"/"+object)
		}
		statements = append(statements, s)
	}
	data, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", append(statements, denials(at, access)...)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy of %s: %w", at, err)
	}
	return append(data, '\n'), nil
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
		if dir := path.Dir(secret) + "/"; !access.MayRead(dir) {
			name = dir + "*"
		}
		secrets = append(secrets, parameters+everywhere+"/"+name)
	}
	slices.Sort(secrets)
	var statements []statement
	if len(secrets) > 0 {
		statements = append(statements, statement{"NotOthersSecrets", "Deny", []string{"ssm:GetParameter*"}, slices.Compact(secrets)})
	}
	// Who may read a path may read all below it, whatever is denied there (GetParametersByPath, API reference).
	top, _, _ := strings.Cut(at.Root[1:], "/")
	top = parameters + "/" + top
	return append(statements, statement{"NotByPath", "Deny", []string{"ssm:GetParametersByPath"}, []string{parameters + "/", top, top + "/*"}})
}
