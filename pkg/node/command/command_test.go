package command_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hardtack/packer-plugin-hardtack/pkg/node/command"
	"github.com/hardtack/packer-plugin-hardtack/pkg/node/timeline"
)

// TestProgressLine reads back the progress line that a unit writes when it works; a person's command writes none.
func TestProgressLine(t *testing.T) {
	var out strings.Builder
	command.Streams{Out: &out, Unit: "hardtack-certs-etcd.service"}.Works(timeline.PhaseCerts, command.ReaderUnit)
	p, ok := timeline.ParseProgress(out.String())
	if !ok || p.Phase != timeline.PhaseCerts || !slices.Equal(p.Units, []string{"hardtack-certs-etcd.service", command.ReaderUnit}) || p.At <= 0 {
		t.Errorf("%q is read as %+v, %v", out.String(), p, ok)
	}
	out.Reset()
	if (command.Streams{Out: &out}).Works(timeline.PhaseCerts, command.ReaderUnit); out.Len() > 0 {
		t.Errorf("without a unit it writes %q", out.String())
	}
}
