// Package datasource is Packer's `data "hardtack-lock"`: what a lock file says, for use in templates.
//
// Its rule: it only reads files, since Packer can neither cancel a data source nor show its progress.
package datasource
