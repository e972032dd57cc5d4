package provisioner

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/packer-plugin-sdk/packer"
)

// local runs commands on this machine. id prints uid, and sudo runs the shell text sudo.
type local struct {
	packer.MockCommunicator
	uid, sudo string
}

func (l *local) Start(ctx context.Context, cmd *packer.RemoteCmd) error {
	c := exec.CommandContext(ctx, "sh", "-c", "id() { echo "+l.uid+"; }; sudo() { "+l.sudo+"; }; "+strings.Replace(cmd.Command, "sh -c ", "eval ", 1))
	c.Stdin, c.Stdout, c.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	if err := c.Start(); err != nil {
		return err
	}
	go func() {
		_ = c.Wait()
		cmd.SetExited(c.ProcessState.ExitCode())
	}()
	return nil
}

func TestBecome(t *testing.T) {
	for name, test := range map[string]struct {
		uid, sudo, prefix, want string
	}{
		"root":                         {uid: "0", sudo: "exit 1"},
		"a user whom sudo knows":       {uid: "1000", sudo: "true", prefix: "sudo -n "},
		"a user who needs a password":  {uid: "1000", sudo: "echo a password is required >&2; return 1", want: "a password is required"},
		"a machine that has no sudo":   {uid: "1000", sudo: "echo sudo: not found >&2; return 127", want: "sudo: not found (connect as root"},
		"an answer that is not a user": {uid: "", sudo: "return 1", want: "connect as root"},
	} {
		t.Run(name, func(t *testing.T) {
			target := &target{comm: &local{uid: test.uid, sudo: test.sudo}}
			err := target.become(t.Context())
			if target.prefix != test.prefix {
				t.Errorf("commands begin with %q instead of %q", target.prefix, test.prefix)
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("the error lacks %q: %v", test.want, err)
			}
		})
	}
}

func TestScriptsAreQuotedForAnyShell(t *testing.T) {
	var out strings.Builder
	exit, err := (&target{comm: &local{uid: "0", sudo: "true"}}).Run(t.Context(), `printf '%s' "it's $((1+1))"; exit 3`, nil, &out, nil)
	if err != nil || exit != 3 || out.String() != "it's 2" {
		t.Errorf("the script printed %q and ended with %d, %v", out.String(), exit, err)
	}
}

func TestLostConnection(t *testing.T) {
	comm := &packer.MockCommunicator{StartExitStatus: packer.CmdDisconnect}
	if _, err := (&target{comm: comm}).Run(t.Context(), "true", nil, nil, nil); err == nil || !strings.Contains(err.Error(), "connection to the target was lost") {
		t.Errorf("a lost connection: %v", err)
	}
}

// deaf never ends its commands, which keep printing.
type deaf struct{ *packer.MockCommunicator }

func (deaf) Start(_ context.Context, cmd *packer.RemoteCmd) error {
	go func() {
		for {
			if _, err := io.WriteString(cmd.Stdout, "x"); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return nil
}

// The race detector sees it where output still arrives after Run has returned.
func TestCancelDoesNotWaitForACommandThatNeverEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	var out strings.Builder
	start := time.Now()
	_, err := (&target{comm: deaf{}}).Run(ctx, "true", nil, &out, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled command ended with %v", err)
	}
	if took := time.Since(start); took > 2*patience {
		t.Errorf("it took %v", took)
	}
	length := out.Len()
	time.Sleep(20 * time.Millisecond)
	if out.Len() != length {
		t.Error("output arrived after the command was given up")
	}
}

func TestPluginWithoutAnAgentSaysSo(t *testing.T) {
	_, err := (&Provisioner{}).programs("riscv64") // which no Makefile builds
	for _, want := range []string{"make plugin", "hardtack-agent", "agent_path", "hardtack-userdata", "reader_path"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without programs, %q is not named: %v", want, err)
		}
	}
}
