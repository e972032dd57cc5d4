// Package datasource is Packer's `data "hardtack-lock"`: the contents of a lock file, for use in templates.
//
// It only reads files, since Packer can neither cancel a data source nor show its progress.
package datasource
