package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
	"github.com/hardtack/packer-plugin-hardtack/pkg/image/oci"
)

// pauseImage is the name of the pause image in upstream's Dockerfile, without the tag.
const pauseImage = "registry.k8s.io/pause"

// buildPause compiles the pause program, a C file in Kubernetes' module, and makes an image of it.
func (j job) buildPause(ctx context.Context, w workspace) error {
	module := j.component.Modules.Module
	inside, ok := strings.CutPrefix(j.program.Package, module+"/")
	if !ok {
		return fmt.Errorf("package %s is not below the module %s", j.program.Package, module)
	}
	dir, err := j.download(ctx, w, module)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, filepath.FromSlash(inside))
	if err := j.checkPause(filepath.Join(filepath.Dir(filepath.Dir(file)), "Makefile")); err != nil {
		return err
	}
	code, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the pause program: %w", err)
	}
	// Compiled by a relative name, so that the result contains no path of this machine.
	if err := os.WriteFile(filepath.Join(w.dir, path.Base(inside)), code, 0o644); err != nil {
		return err
	}
	program := filepath.Join(w.tmp, "pause")
	err = run.Run(ctx, run.Command{
		Name: j.tools.cc(), Dir: w.dir, Env: j.tools.environment(j.program, w),
		// Upstream's flags, and stripped without a build id, as upstream's strip does.
		Args: []string{"-Os", "-Wall", "-Werror", "-static", "-s", "-Wl,--build-id=none",
			"-DVERSION=v" + j.component.Version, "-o", program, path.Base(inside)},
	})
	if err != nil {
		return fmt.Errorf("compiling the pause program: %w", err)
	}
	return writePause(w.out, program, j.component.Version, j.arch)
}

// download returns the module's directory in Go's module cache, downloading it if necessary.
func (j job) download(ctx context.Context, w workspace, module string) (string, error) {
	var out bytes.Buffer
	err := run.Run(ctx, run.Command{
		Name: j.tools.goCommand, Args: []string{"mod", "download", "-json", module},
		Dir: w.dir, Env: j.tools.environment(j.program, w), Stdout: &out,
	})
	var answer struct{ Dir, Error string }
	if e := json.Unmarshal(out.Bytes(), &answer); err == nil {
		err = e
	}
	// The error is in the JSON on stdout; stderr has only that there was one.
	if answer.Error != "" {
		return "", j.tools.explain(&run.Error{Command: "go mod download " + module, Output: answer.Error, Err: errors.New("no module")})
	}
	if err != nil {
		return "", j.tools.explain(err)
	}
	return answer.Dir, nil
}

// checkPause compares the lock's version with the one in upstream's Makefile.
func (j job) checkPause(makefile string) error {
	data, err := os.ReadFile(makefile)
	if err != nil {
		return fmt.Errorf("reading the version of the pause image: %w", err)
	}
	match := regexp.MustCompile(`(?m)^TAG \?= (\S+)$`).FindSubmatch(data)
	if match == nil {
		return fmt.Errorf("%s has no version of the pause image (TAG)", makefile)
	}
	if tag := string(match[1]); tag != j.component.Version {
		return fmt.Errorf("%s %s has the pause image %s, but the lock says %s: change one of them",
			j.component.Modules.Module, j.source.version(j.component.Modules.Module), tag, j.component.Version)
	}
	return nil
}

// writePause writes the image's OCI archive, with the program as its only file.
func writePause(archive, program, version, arch string) (err error) {
	data, err := os.ReadFile(program) // less than a megabyte
	if err != nil {
		return err
	}
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return oci.WriteProgram(f, oci.Program{Name: "pause", Content: data, Image: pauseImage, Tag: version, User: oci.NobodyUser, Arch: arch})
}
