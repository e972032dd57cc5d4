package spec

import (
	"io/fs"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/hardtack/packer-plugin-hardtack/images"
)

// What opens the metadata service to pods takes the place of a drop-in only if the image has one of the same name.
func TestOpenMetadata(t *testing.T) {
	inImage := "rootfs/usr/lib/systemd/system" + strings.TrimPrefix(openMetadata, unitDir)
	_, err := fs.Stat(images.FS, inImage)
	assert.NilError(t, err)
}
