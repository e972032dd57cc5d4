// Package awsname knows the forms of what AWS names: regions, accounts, and the ARNs that users give.
//
// Its rule: it knows forms and no list of regions, since AWS opens new ones. Every partition is meant: aws, aws-cn,
// aws-us-gov, and those to come.
package awsname

import "regexp"

const (
	partition = `aws[a-z-]*`
	account   = `[0-9]{12}`
)

var (
	partForm     = regexp.MustCompile(`^` + partition + `$`)
	region       = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)
	accountForm  = regexp.MustCompile(`^` + account + `$`)
	key          = regexp.MustCompile(`^arn:` + partition + `:kms:[a-z0-9-]+:` + account + `:key/[A-Za-z0-9-]+$`)
	organisation = regexp.MustCompile(`^arn:` + partition + `:organizations::` + account + `:(organization/o-[a-z0-9]{10,32}|ou/o-[a-z0-9]{10,32}/ou-[0-9a-z]{4,32}-[a-z0-9]{8,32})$`)
)

// IsRegion reports whether the text has the form of a region's name: "eu-central-1", "us-gov-west-1".
func IsRegion(text string) bool { return region.MatchString(text) }

// IsPartition reports whether the text has the form of a partition's name: "aws", "aws-cn".
func IsPartition(text string) bool { return partForm.MatchString(text) }

// IsAccount reports whether the text is an account's twelve digits.
func IsAccount(text string) bool { return accountForm.MatchString(text) }

// IsKey reports whether the text is the ARN of a KMS key: arn:aws:kms:REGION:ACCOUNT:key/ID.
func IsKey(text string) bool { return key.MatchString(text) }

// IsOrganisation reports whether the text is the ARN of an organisation, or of a unit of one.
func IsOrganisation(text string) bool { return organisation.MatchString(text) }

// Architecture is AWS's name of an architecture that Debian and Go call amd64 or arm64; empty for any other.
func Architecture(debian string) string {
	return map[string]string{"amd64": "x86_64", "arm64": "arm64"}[debian]
}
