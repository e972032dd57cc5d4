// Package lambda holds the SAM template of the DNS function. It is what `sam deploy` deploys in this
// directory, and what Go reads the function's figures from: nothing else spells them. The function's
// program is lambda/function.
package lambda

import _ "embed"

// Template is template.yaml. pkg/dns/shipped reads it.
//
//go:embed template.yaml
var Template []byte
