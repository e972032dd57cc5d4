package main

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/hardtack/packer-plugin-hardtack/pkg/cluster"
)

// AutoScaling wants the two percentages of a refresh at most 100 apart, so that a minimum alone has to move the maximum.
func TestRefreshPercentages(t *testing.T) {
	for _, c := range []struct {
		args     string
		min, max int
		err      string
	}{
		{args: "", min: 100, max: 110},
		{args: "--min-healthy 50", min: 50, max: 110},
		{args: "--min-healthy 5", min: 5, max: 105},
		{args: "--min-healthy 0", min: 0, max: 100},
		{args: "--max-healthy 0", min: 100, max: 0},
		{args: "--min-healthy 0 --max-healthy 110", err: "with this minimum the most is 100 %"},
		{args: "--min-healthy -1", err: "-1 % is not between 0 and 100"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var got cluster.RefreshOptions
			app := &cli.App{Flags: refreshFlags(), Action: func(x *cli.Context) (err error) {
				got, err = refreshOptions(x)
				return err
			}, ExitErrHandler: func(*cli.Context, error) {}}
			err := app.RunContext(t.Context(), append([]string{"refresh"}, strings.Fields(c.args)...))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, want %q", err, c.err)
				}
				return
			}
			if p := got.Preferences; err != nil || p.MinHealthy != c.min || p.MaxHealthy != c.max {
				t.Errorf("%d to %d, %v, want %d to %d", p.MinHealthy, p.MaxHealthy, err, c.min, c.max)
			}
		})
	}
}
