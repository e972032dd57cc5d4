// Package conformance builds what Kubernetes judges a cluster by: the end-to-end tests of one version, the container images that
// they use, and critest, the suite for container runtimes.
//
// Its rule: the programs are upstream's own, compiled from their modules. The images have the names that the tests ask for and the
// programs that the tests run in them; what else upstream's images have is Debian's here.
package conformance

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// Version is the version of Kubernetes that the suite is of.
const Version = "v1.36.3"

// modules is the main module of the build: it requires Version.
//
//go:embed modules.txtar
var modules []byte

// The packages that the programs are compiled from; a suite is a package's tests.
const (
	e2ePackage     = "k8s.io/kubernetes/test/e2e"
	critestPackage = "sigs.k8s.io/cri-tools/cmd/critest"
	imagePackages  = "k8s.io/kubernetes/test/images/"
)

// imagePrograms are the programs in container images, by the path of their package.
var imagePrograms = []string{
	imagePackages + "agnhost", imagePackages + "regression-issue-74839", imagePackages + "resource-consumer",
	imagePackages + "resource-consumer/consume-cpu", imagePackages + "nonewprivs",
	"k8s.io/sample-apiserver",
}

// imageFiles are the files of Kubernetes' module that images have beside their programs, by their path below imagePackages: what
// agnhost's TLS servers show.
var imageFiles = []string{"agnhost/porter/localhost.crt", "agnhost/porter/localhost.key"}

// Suite is what Build has built.
type Suite struct {
	// E2E and Critest are the paths of the two programs.
	E2E, Critest string
	// Images is the path of an archive with all images of E2E, as docker save writes it, and RuntimeImages that of Critest's.
	Images, RuntimeImages string
}

// Options are the options of Build.
type Options struct {
	// Cache is the directory that keeps what is built, below a name made of everything that decides it.
	Cache string
	// Etcd is the path of an etcd, which the tests of aggregated APIs run as a container.
	Etcd string
	// Log is told what is done; a step takes minutes.
	Log func(text string)
}

// Build builds what is not in the cache. It needs Go, and mmdebstrap with a Debian archive; a first one takes some ten minutes.
func Build(ctx context.Context, o Options) (Suite, error) {
	version, err := output(ctx, "", "go", "version")
	if err != nil {
		return Suite{}, err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", modules, version)
	dir := filepath.Join(o.Cache, fmt.Sprintf("%s-%.8x", Version, h.Sum(nil)))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Suite{}, fmt.Errorf("making a place for the suite: %w", err)
	}
	s := Suite{E2E: filepath.Join(dir, "e2e.test"), Critest: filepath.Join(dir, "critest"), Images: archive(dir, "images", pictures), RuntimeImages: archive(dir, "critest-images", runtimePictures)}
	b := builder{Options: o, dir: dir}
	programs := filepath.Join(dir, fmt.Sprintf("programs-%.8x", sha256.Sum256(fmt.Append(nil, imagePrograms, imageFiles))))
	for _, step := range []struct {
		what, to string
		do       func(ctx context.Context, to string) error
	}{
		{"compiling the programs of the images", programs, b.programs},
		{"compiling Kubernetes' end-to-end tests", s.E2E, b.test(e2ePackage)},
		{"compiling critest", s.Critest, b.test(critestPackage)},
		{"making the images", s.Images, func(ctx context.Context, to string) error { return b.images(ctx, pictures, programs, to) }},
		{"making critest's images", s.RuntimeImages, func(ctx context.Context, to string) error { return b.images(ctx, runtimePictures, programs, to) }},
	} {
		if _, err := os.Stat(step.to); err == nil {
			continue
		}
		o.Log(step.what)
		if err := whole(ctx, step.to, step.do); err != nil {
			return Suite{}, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return s, nil
}

// archive is where an archive of these images, all of which have the base, is kept.
func archive(dir, name string, pictures []picture) string {
	// Go prints maps in the order of their keys.
	return filepath.Join(dir, fmt.Sprintf("%s-%.8x.tar", name, sha256.Sum256(fmt.Append(nil, baseArguments, pictures))))
}

// whole makes a file or a directory beside its place and renames it: a build that is interrupted leaves no half one.
func whole(ctx context.Context, to string, do func(ctx context.Context, to string) error) (err error) {
	partial := fmt.Sprintf("%s.%d", to, os.Getpid())
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if err := do(ctx, partial); err != nil {
		return err
	}
	return os.Rename(partial, to)
}

type builder struct {
	Options
	dir string
}

// module unpacks the main module; the caller removes it.
func (b builder) module() (dir string, err error) {
	if dir, err = os.MkdirTemp(b.dir, "module-"); err != nil {
		return "", err
	}
	content, err := txtar.FS(txtar.Parse(modules))
	if err == nil {
		err = os.CopyFS(dir, content)
	}
	return dir, err
}

// programs compiles the images' programs into a directory, and copies imageFiles there.
func (b builder) programs(ctx context.Context, to string) (err error) {
	if err := b.compile(ctx, append([]string{"build", "-o", to + string(filepath.Separator)}, imagePrograms...)); err != nil {
		return err
	}
	module, err := b.module()
	defer func() { err = errors.Join(err, os.RemoveAll(module)) }()
	if err != nil {
		return fmt.Errorf("unpacking the module: %w", err)
	}
	source, err := output(ctx, module, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	for _, name := range imageFiles {
		content, err := os.ReadFile(filepath.Join(source, "test", "images", filepath.FromSlash(name)))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(name)), content, 0o644)
		}
		if err != nil {
			return fmt.Errorf("a file of the images: %w", err)
		}
	}
	return nil
}

// test compiles the tests of a package.
func (b builder) test(pkg string) func(ctx context.Context, to string) error {
	return func(ctx context.Context, to string) error {
		return b.compile(ctx, []string{"test", "-c", "-o", to, pkg})
	}
}

// compile runs the go command in the main module, with the flags of a small static program.
func (b builder) compile(ctx context.Context, args []string) (err error) {
	module, err := b.module()
	defer func() { err = errors.Join(err, os.RemoveAll(module)) }()
	if err != nil {
		return fmt.Errorf("unpacking the module: %w", err)
	}
	args = slices.Insert(args, 1, "-trimpath", "-ldflags=-s -w")
	return run.Run(ctx, run.Command{Name: "go", Args: args, Dir: module, Env: append(os.Environ(), "CGO_ENABLED=0")})
}

// output is what a program prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	var out strings.Builder
	err := run.Run(ctx, run.Command{Name: name, Args: args, Dir: dir, Stdout: &out})
	return strings.TrimSpace(out.String()), err
}
