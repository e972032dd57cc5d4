package conformance

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hardtack/packer-plugin-hardtack/pkg/base/run"
)

// basePackages are the Debian packages of the layer that all images have: what the tests run in a container beside its own program.
const basePackages = "busybox,bash,curl,bind9-dnsutils,netcat-openbsd,iproute2,nginx-light,perl-base,procps,util-linux"

// promoted is the registry of the tests' images.
const promoted = "registry.k8s.io/e2e-test-images/"

// picture is an image: the base layer, a layer of its own, and how it runs.
type picture struct {
	// names are the names that the tests ask for (test/utils/image/manifest.go of Version).
	names []string
	// programs are those of imagePrograms and imageFiles by their place in the image; etcd is Options.Etcd's.
	programs map[string]string
	// files are other files, and links are symbolic links with their targets.
	files, links map[string]string
	config       v1.Config
	// setID has the programs run as their owner, root.
	setID bool
}

// pictures follow the Dockerfiles below test/images of Version.
var pictures = []picture{
	{
		names:    []string{promoted + "agnhost:2.63.0", promoted + "agnhost:2.55"},
		programs: map[string]string{"agnhost": "agnhost", "localhost.crt": "localhost.crt", "localhost.key": "localhost.key"},
		links:    map[string]string{"agnhost-2": "agnhost"},
		files: map[string]string{
			"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
			"etc/group":  "root:x:0:\nnogroup:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
			"uploads/":   "",
		},
		config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}},
	},
	{names: []string{promoted + "busybox:1.37.0-1", promoted + "perl:5.26", promoted + "glibc-dns-testing:2.0.0"}, config: v1.Config{Cmd: []string{"sh"}}},
	{names: []string{promoted + "nonroot:1.5"}, config: v1.Config{Cmd: []string{"sh"}, User: "1234"}},
	webServer(80, promoted+"nginx:1.15-4", promoted+"nginx:1.27-0"),
	{
		names: []string{promoted + "nautilus:1.8"}, programs: map[string]string{"agnhost": "agnhost"},
		files:  map[string]string{"data.json": `{"image": "nautilus.jpg"}` + "\n", "nautilus.jpg": "nautilus"},
		config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	},
	{
		names: []string{promoted + "kitten:1.8"}, programs: map[string]string{"agnhost": "agnhost"},
		files:  map[string]string{"data.json": `{"image": "kitten.jpg"}` + "\n", "kitten.jpg": "kitten"},
		config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}},
	},
	{
		names: []string{promoted + "sample-apiserver:1.29.2"}, programs: map[string]string{"sample-apiserver": "sample-apiserver"},
		config: v1.Config{Entrypoint: []string{"/sample-apiserver"}},
	},
	{
		names: []string{promoted + "regression-issue-74839:1.4"}, programs: map[string]string{"regression-issue-74839": "regression-issue-74839"},
		config: v1.Config{Entrypoint: []string{"/regression-issue-74839"}},
	},
	{
		names: []string{promoted + "resource-consumer:1.14"}, programs: map[string]string{"consumer": "resource-consumer", "consume-cpu": "consume-cpu"},
		config: v1.Config{Entrypoint: []string{"/consumer"}},
	},
	{
		names: []string{"registry.k8s.io/pause:3.10.2"}, programs: map[string]string{"agnhost": "agnhost"},
		config: v1.Config{Entrypoint: []string{"/agnhost", "pause"}},
	},
	{names: []string{"registry.k8s.io/etcd:3.6.8-0"}, programs: map[string]string{"usr/local/bin/etcd": "etcd"}},
}

// critestRegistry is where critest's own images are.
const critestRegistry = "gcr.io/k8s-staging-cri-tools/"

// users are those of critest's images, which busybox's image has besides (images/ of cri-tools).
var users = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33:www-data:/var/www:/bin/false\ndefault-user:x:1000:1000::/home/default-user:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n",
	"etc/group":  "root:x:0:\nwww-data:x:33:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\nnogroup:x:65534:\n",
}

// runtimePictures are the images of critest. One that it names by its digest cannot be made: test-image-digest.
var runtimePictures = append([]picture{
	{names: []string{promoted + "busybox:1.29-2"}, files: users, config: v1.Config{Cmd: []string{"sh"}}},
	{names: []string{"registry.k8s.io/pause:3.9", "k8s.gcr.io/pause:3.9"}, programs: map[string]string{"agnhost": "agnhost"}, config: v1.Config{Entrypoint: []string{"/agnhost", "pause"}}},
	{setID: true, names: []string{promoted + "nonewprivs:1.3"}, files: users, programs: map[string]string{"usr/local/bin/nnp": "nonewprivs"}, config: v1.Config{Cmd: []string{"nnp"}}},
	webServer(80, promoted+"nginx:1.14-2"), announced("httpd", webServer(80, promoted+"httpd:2.4.39-4")), webServer(12003, critestRegistry+"hostnet-nginx-amd64:latest"),
	asUser("test-image-user-uid", "1002"), asUser("test-image-user-username", "www-data"),
	asUser("test-image-user-uid-group", "1003:1004"), asUser("test-image-user-username-group", "www-data:1004"),
	asUser("test-image-predefined-group", "1000"),
}, named("test-image-1:latest", "test-image-2:latest", "test-image-3:latest", "test-image-latest:latest", "test-image-tag:test", "test-image-tag:all",
	"test-image-tags:1 test-image-tags:2 test-image-tags:3")...)

// webServer is an nginx on a port. Debian's pages are elsewhere, and its log is a file.
func webServer(port int, names ...string) picture {
	return picture{
		names: names,
		files: map[string]string{
			"etc/passwd": users["etc/passwd"], "etc/group": users["etc/group"],
			"etc/nginx/nginx.conf": fmt.Sprintf("user nobody nogroup;\npid /var/run/nginx.pid;\nevents {}\nhttp { access_log /dev/stdout; server { listen %d; root /usr/share/nginx/html; } }\n", port),
			"usr/share/nginx/html/index.html": "<!DOCTYPE html>\n<html><head><title>Welcome to nginx!</title></head>" +
				"<body><h1>Welcome to nginx!</h1></body></html>\n",
			"var/lib/nginx/": "", "var/log/nginx/": "", "var/run/": "",
		},
		config: v1.Config{Entrypoint: []string{"/usr/sbin/nginx", "-e", "/dev/stderr", "-g", "daemon off;"}},
	}
}

// announced has a web server log a word before anything else, as Apache's does: critest looks for it.
func announced(word string, p picture) picture {
	p.config.Entrypoint = append([]string{"/bin/sh", "-c", "echo " + word + `; exec "$@"`, "sh"}, p.config.Entrypoint...)
	return p
}

// asUser is an image of critest that runs as a user.
func asUser(name, user string) picture {
	return picture{names: []string{critestRegistry + name + ":latest"}, files: users, config: v1.Config{Cmd: []string{"sh"}, User: user}}
}

// named are images of critest that differ in one file, each with the names that a string has.
func named(names ...string) (list []picture) {
	for _, n := range names {
		p := picture{files: map[string]string{n: ""}, config: v1.Config{Cmd: []string{"sh"}}}
		for one := range strings.FieldsSeq(n) {
			p.names = append(p.names, critestRegistry+one)
		}
		list = append(list, p)
	}
	return list
}

// images makes an archive of images.
func (b builder) images(ctx context.Context, pictures []picture, programs, to string) error {
	base, err := b.base(ctx)
	if err != nil {
		return err
	}
	all := map[name.Tag]v1.Image{}
	for _, p := range pictures {
		image, err := b.image(p, base, programs)
		if err != nil {
			return fmt.Errorf("making %s: %w", p.names[0], err)
		}
		for _, n := range p.names {
			tag, err := name.NewTag(n)
			if err != nil {
				return err
			}
			all[tag] = image
		}
	}
	return tarball.MultiWriteToFile(to, all)
}

// baseArguments make the layer that all images have. Nothing is configured: no maintainer's script of these packages makes anything
// that the programs need. This variant ends before it would run customize hooks, and says nothing of them.
var baseArguments = []string{
	"--quiet", "--variant=extract", "--mode=root", "--format=tar", "--include=" + basePackages,
	// Debian's nc is an alternative, which a maintainer's script would choose; busybox's knows no -v. Names that a package already has
	// stay its own, but for top: without a terminal, that of procps ends at once, and critest's pods
	// wait by it. Without its list of names an image would have no shell. The names are hard links: critest masks /bin/ls, which by a
	// symbolic link would be busybox, and the shell with it. And busybox-static's shell runs its own ls whatever is masked.
	`--extract-hook=set -e; rm "$1/usr/bin/top"; ln "$1/usr/bin/nc.openbsd" "$1/usr/bin/nc"; names=$(chroot "$1" /bin/busybox --list); for n in $names; do [ -e "$1/usr/bin/$n" ] || ln "$1/usr/bin/busybox" "$1/usr/bin/$n"; done; test -e "$1/bin/sh"`,
	`--extract-hook=rm -rf "$1"/usr/share/doc "$1"/usr/share/man "$1"/usr/share/locale "$1"/var/lib/dpkg "$1"/var/lib/apt`,
	"trixie",
}

// base makes the layer of Debian's programs, with busybox under each of its names.
func (b builder) base(ctx context.Context) (v1.Layer, error) {
	file := archive(b.dir, "base", nil)
	err := whole(ctx, file, func(ctx context.Context, to string) error {
		return run.Run(ctx, run.Command{Name: "mmdebstrap", Args: append(slices.Clone(baseArguments), to)})
	})
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(file)
}

// image makes one image.
func (b builder) image(p picture, base v1.Layer, programs string) (v1.Image, error) {
	var own bytes.Buffer
	w := tar.NewWriter(&own)
	for to, program := range p.programs {
		file, mode := filepath.Join(programs, program), int64(0o755)
		if p.setID {
			mode = 0o6755 // upstream's Dockerfile: chmod +s
		}
		if program == "etcd" {
			file = b.Etcd
		}
		if err := writeProgram(w, to, file, mode); err != nil {
			return nil, err
		}
	}
	for to, content := range p.files {
		h := tar.Header{Name: to, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(to, "/") {
			h.Mode, h.Typeflag = 0o1777, tar.TypeDir
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	for to, target := range p.links {
		if err := w.WriteHeader(&tar.Header{Name: to, Linkname: target, Typeflag: tar.TypeSymlink}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(own.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = "amd64", "linux"
	config.Config = p.config
	config.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return mutate.ConfigFile(image, config)
}

func writeProgram(w *tar.Writer, to, file string, mode int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for dir := path.Dir(to); dir != "."; dir = path.Dir(dir) {
		if err := w.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir}); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: to, Mode: mode, Size: info.Size(), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
