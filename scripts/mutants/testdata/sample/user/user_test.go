// Package user tests the sample from another directory.
package user

import (
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/scripts/mutants/testdata/sample"
)

func TestLimit(t *testing.T) {
	if sample.Late(15) || !sample.Late(16) {
		t.Error("the limit is 15")
	}
}
