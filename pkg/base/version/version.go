// Package version has the version of Hardtack.
//
// Its rule: all programs of the repository have the same version, set by the linker.
package version

// Version is the release, three numbers without a "v". The Makefile sets it by -X from the file
// that `make help` names; a plain `go build` leaves this value.
var Version = "0.1.0"

// Commit is the commit that a program was built from. The Makefile sets it for the command alone: a program of the image would
// make every commit another image.
var Commit string

// Prerelease is "dev" between releases, where Version is the next one, and "" in a release, whose linker flags are in .goreleaser.yml.
// Packer takes a "dev" plugin from a file and never by `packer init`.
var Prerelease = "dev"

// String returns the version with its prerelease, if any.
func String() string {
	if Prerelease == "" {
		return Version
	}
	return Version + "-" + Prerelease
}
