package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/pki"
)

// statement is a statement of an IAM policy.
type statement struct {
	Effect   string
	Action   []string
	Resource []string
}

// Policy returns the IAM policy document that allows an instance role the given access to a store of the kind ssm, and
// nothing else. It names no region and no account. SecureStrings are encrypted with the
// account's default key for Parameter Store, whose key policy lets everyone decrypt who may read the parameter.
func Policy(at Location, access pki.Access) ([]byte, error) {
	if at.Kind != KindSSM {
		return nil, fmt.Errorf("store %s: only one in %s has an IAM policy; a directory has modes", at, KindSSM)
	}
	var statements []statement
	for _, part := range []struct {
		action  string
		objects []string
	}{{"ssm:GetParameter", access.Read}, {"ssm:PutParameter", access.Write}} {
		if len(part.objects) == 0 {
			continue
		}
		s := statement{Effect: "Allow", Action: []string{part.action}}
		for _, object := range part.objects {
			if strings.HasSuffix(object, "/") {
				object += "*"
			}
			s.Resource = append(s.Resource, "arn:aws:ssm:*:*:parameter"+at.Root+"/"+object)
		}
		statements = append(statements, s)
	}
	data, err := json.MarshalIndent(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", statements}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the policy of %s: %w", at, err)
	}
	return append(data, '\n'), nil
}
