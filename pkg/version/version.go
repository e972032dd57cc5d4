// Package version says which Hardtack this is.
//
// Its rule: one version for every program of the repository, set when it is linked.
package version

// Version is the release, three numbers without a "v". The Makefile sets it by -X from the file
// that `make help` names; a plain `go build` leaves this value.
var Version = "0.1.0"

// Prerelease is "" for a release and "dev" otherwise; Packer ignores a "dev" plugin in `packer init`.
var Prerelease = ""

// String is the version as people write it.
func String() string {
	if Prerelease == "" {
		return Version
	}
	return Version + "-" + Prerelease
}
