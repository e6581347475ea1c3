package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// specified is the real specification.
func specified(t *testing.T) []image {
	t.Helper()
	all, err := images()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fakeRelease has text in place of programs.
func fakeRelease(t *testing.T, all []image) release {
	t.Helper()
	r := release{
		Bin: t.TempDir(), Architectures: []string{"amd64", "arm64"}, Registry: "registry.example.com/capstan", Version: "v1.2.3", Revision: "c0ffee",
		Created: time.Date(2026, 11, 23, 1, 2, 3, 0, time.UTC),
	}
	for _, architecture := range r.Architectures {
		if err := os.MkdirAll(filepath.Join(r.Bin, architecture), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			for _, program := range i.Programs {
				content := strings.Repeat(program+" for "+architecture+"\n", 100)
				if err := os.WriteFile(filepath.Join(r.Bin, architecture, program), []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return r
}

// pushed builds the images, pushes them to a registry in memory, and returns what is there by a name.
func pushed(t *testing.T, r release, all []image) func(repository string) v1.ImageIndex {
	t.Helper()
	out := t.TempDir()
	if err := r.write(all, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	prefix := strings.TrimPrefix(server.URL, "http://") + "/some/path"
	var report bytes.Buffer
	p := publication{Registry: prefix, Tag: "tagged", Version: r.Version, Revision: r.Revision}
	if err := p.push(t.Context(), out, &report); err != nil {
		t.Fatal(err)
	}
	return func(repository string) v1.ImageIndex {
		ref, err := name.ParseReference(prefix + "/" + repository + ":tagged")
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if line := prefix + "/" + repository + "@" + digest.String() + "\n"; !strings.Contains(report.String(), line) {
			t.Errorf("the report lacks %s:\n%s", line, report.String())
		}
		return index
	}
}

// files are the members of the file system of an image.
func files(t *testing.T, img v1.Image) (headers map[string]*tar.Header, contents map[string]string) {
	t.Helper()
	headers, contents = map[string]*tar.Header{}, map[string]string{}
	stream := mutate.Extract(img)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name], contents[header.Name] = header, string(content)
	}
}

// platforms are the images of an index.
func platforms(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		all[d.Platform.String()] = img
	}
	return all
}

// What comes back from a registry is an image for each architecture, which runs the program as an ordinary user.
func TestPushedImages(t *testing.T) {
	t.Parallel()
	all := specified(t)
	pull := pushed(t, fakeRelease(t, all), all)
	for _, i := range all {
		index := pull(i.Name)
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if manifest.MediaType != types.OCIImageIndex || manifest.Annotations["org.opencontainers.image.title"] != i.Title {
			t.Errorf("%s is an index of type %s with %v", i.Name, manifest.MediaType, manifest.Annotations)
		}
		images := platforms(t, index)
		if len(images) != 2 {
			t.Errorf("%s has platforms %v", i.Name, images)
		}
		for _, architecture := range []string{"amd64", "arm64"} {
			img := images["linux/"+architecture]
			if img == nil {
				t.Fatalf("%s has no image for %s", i.Name, architecture)
			}
			checkConfig(t, i, architecture, img)
			checkFiles(t, i, architecture, img)
		}
		want, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		for _, alias := range i.Aliases {
			if digest, err := pull(alias).Digest(); err != nil || digest != want {
				t.Errorf("%s is %s, %v, and its alias %s is %s", i.Name, want, err, alias, digest)
			}
		}
	}
}

func checkConfig(t *testing.T, i image, architecture string, img v1.Image) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != architecture || config.Config.User != "65532:65532" ||
		!slices.Equal(config.Config.Entrypoint, []string{"/" + i.Programs[0]}) || len(config.Config.Cmd) > 0 {
		t.Errorf("%s for %s: %+v", i.Name, architecture, config)
	}
	for label, want := range map[string]string{
		"title": i.Title, "description": i.Description, "version": "v1.2.3", "revision": "c0ffee", "created": "2026-11-23T01:02:03Z",
		"licenses": "Apache-2.0", "source": "https://github.com/capstan-io/capstan",
	} {
		if got := config.Config.Labels["org.opencontainers.image."+label]; got != want || want == "" {
			t.Errorf("%s: label %s is %q, want %q", i.Name, label, got, want)
		}
	}
}

func checkFiles(t *testing.T, i image, architecture string, img v1.Image) {
	t.Helper()
	headers, contents := files(t, img)
	for _, program := range i.Programs {
		if h := headers[program]; h == nil || h.Mode != 0o755 || !strings.HasPrefix(contents[program], program+" for "+architecture+"\n") {
			t.Errorf("%s for %s: %s is %+v", i.Name, architecture, program, h)
		}
	}
	for program, names := range i.Names {
		for _, n := range names {
			if h := headers[n]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != program {
				t.Errorf("%s: %s is %+v, and not a link to %s", i.Name, n, h, program)
			}
		}
	}
	if h := headers["tmp"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("%s: /tmp is %+v", i.Name, h)
	}
	if !strings.Contains(contents["etc/passwd"], "nonroot:x:65532:65532:") || !strings.Contains(contents["etc/group"], "nonroot:x:65532:") {
		t.Errorf("%s: users %q, groups %q", i.Name, contents["etc/passwd"], contents["etc/group"])
	}
	if !x509.NewCertPool().AppendCertsFromPEM([]byte(contents["etc/ssl/certs/ca-certificates.crt"])) {
		t.Errorf("%s has no certificate authorities", i.Name)
	}
	for name, h := range headers {
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(epoch) {
			t.Errorf("%s: %s says where and when it was written: %+v", i.Name, name, h)
		}
	}
}

// Images with the same program have a layer of it in common, so that nodes keep it once.
func TestLayersAreShared(t *testing.T) {
	t.Parallel()
	all := specified(t)
	pull := pushed(t, fakeRelease(t, all), all)
	layers := func(repository string) (digests []string) {
		all, err := platforms(t, pull(repository))["linux/amd64"].Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			digest, err := l.Digest()
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, digest.String())
		}
		return digests
	}
	hub, agent, both := layers("capstan-hub"), layers("capstan-agent"), layers("registration")
	// The users and certificates of all, the program, and its names.
	if len(hub) != 3 || len(agent) != 3 || hub[0] != agent[0] {
		t.Errorf("layers of the hub %v, of the agent %v", hub, agent)
	}
	if len(both) != 4 || both[0] != hub[0] || both[1] != agent[1] || both[2] != hub[1] {
		t.Errorf("layers of both %v, of the hub %v, of the agent %v", both, hub, agent)
	}
}

// The same programs make the same images, wherever and whenever they are written.
func TestReproducible(t *testing.T) {
	t.Parallel()
	all := specified(t)
	var digests, archives []string
	for n := range 2 {
		r, out := fakeRelease(t, all), filepath.Join(t.TempDir(), "out")
		for _, i := range all {
			old := time.Now().Add(-time.Duration(n) * time.Hour)
			if err := os.Chtimes(filepath.Join(r.Bin, "amd64", i.Programs[0]), old, old); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(r.Bin, "amd64", i.Programs[0]), 0o700+os.FileMode(n)*0o55); err != nil {
				t.Fatal(err)
			}
		}
		// The second one is written over an earlier build of something else.
		for version := range n + 1 {
			r.Version = []string{"v1.2.2", "v1.2.3"}[1-n+version]
			if err := r.write(all, out, io.Discard); err != nil {
				t.Fatal(err)
			}
		}
		digests = append(digests, read(t, filepath.Join(out, digestsFile)))
		archives = append(archives, read(t, filepath.Join(out, "capstan-agent.tar")))
	}
	if digests[0] != digests[1] || strings.Count(digests[0], "\n") != 11 || !strings.HasPrefix(digests[0], "sha256:") {
		t.Errorf("digests\n%s\nand\n%s", digests[0], digests[1])
	}
	if archives[0] != archives[1] {
		t.Error("archives of the same image differ")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// An archive is an OCI layout with the image under all its names, as containerd imports it.
func TestArchive(t *testing.T) {
	t.Parallel()
	all := specified(t)
	out := t.TempDir()
	if err := fakeRelease(t, all).write(all, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f, err := os.Open(filepath.Join(out, "capstan-hub.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	var manifest v1.IndexManifest
	if err := json.Unmarshal([]byte(read(t, filepath.Join(dir, "index.json"))), &manifest); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range manifest.Manifests {
		names = append(names, d.Annotations["io.containerd.image.name"])
	}
	if want := []string{"registry.example.com/capstan/capstan-hub:v1.2.3", "registry.example.com/capstan/placement:v1.2.3",
		"registry.example.com/capstan/addon-manager:v1.2.3",
		"registry.example.com/capstan/managed-serviceaccount:v1.2.3"}; !slices.Equal(names, want) {
		t.Errorf("names %v, want %v", names, want)
	}
	left, err := filepath.Glob(filepath.Join(out, ".archive-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

func TestRootCertificates(t *testing.T) {
	t.Parallel()
	roots, err := rootCertificates()
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(roots, []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d certificate authorities", n)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(roots) {
		t.Error("they cannot be read")
	}
}

// What is missing or in the way is named.
func TestRefused(t *testing.T) {
	t.Parallel()
	all := specified(t)
	r := fakeRelease(t, all)
	if err := os.Remove(filepath.Join(r.Bin, "arm64", "nodecount")); err != nil {
		t.Fatal(err)
	}
	if err := r.write(all, t.TempDir(), io.Discard); err == nil || !strings.Contains(err.Error(), "image nodecount-addon: ") ||
		!strings.Contains(err.Error(), "build the programs first") {
		t.Errorf("without a program: %v", err)
	}
	r = fakeRelease(t, all)
	r.Version = "v1.2.3+dirty"
	if err := r.write(all, t.TempDir(), io.Discard); err == nil || !strings.Contains(err.Error(), "v1.2.3+dirty") {
		t.Errorf("with a version that is no tag: %v", err)
	}
	strange := t.TempDir()
	if err := os.Mkdir(filepath.Join(strange, "oci"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.write(all, strange, io.Discard); err == nil || !strings.Contains(err.Error(), "no OCI layout") {
		t.Errorf("over a folder of another: %v", err)
	}
	for args, want := range map[string]string{
		"":             "say what to do",
		"pull":         "say what to do",
		"build -bin=x": "-bin, -out, -version and -revision have to be set",
		"build -bin=x -out=y -version=v -revision=r -archs=,": "-archs names no architecture",
		"push -from=x -tag=y": "-from, -registry, -tag, -version and -revision have to be set",
		"push -from=x -tag=y -registry=r -version=v -revision=c": "build the images first",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// Images of another version or commit are not pushed, whatever their tag is going to be.
func TestOldImagesAreNotPushed(t *testing.T) {
	t.Parallel()
	all := specified(t)[:1]
	r, out := fakeRelease(t, all), t.TempDir()
	if err := r.write(all, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	const old = `the images are of version "v1.2.3" and commit "c0ffee", and not of version %q and commit %q: run ` + "`make images` again"
	for name, test := range map[string]struct {
		tag, version, revision string
		pushed                 bool
	}{
		"the same":                      {"v1.2.3", "v1.2.3", "c0ffee", true},
		"under another tag":             {"latest", "v1.2.3", "c0ffee", true},
		"built for the tag":             {"v1.2.3", "devel-c0ffee", "c0ffee", true},
		"another commit":                {"devel-decade", "devel-decade", "decade", false},
		"another commit, the same tag":  {"v1.2.3", "v1.2.3", "decade", false},
		"changes that are not there":    {"v1.2.3", "v1.2.3", "c0ffee-dirty", false},
		"another version of the commit": {"v1.2.4", "v1.2.4", "c0ffee", false},
		"both under another tag":        {"latest", "devel-decade", "decade", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			t.Cleanup(server.Close)
			p := publication{Registry: strings.TrimPrefix(server.URL, "http://"), Tag: test.tag, Version: test.version, Revision: test.revision}
			var report bytes.Buffer
			err := p.push(t.Context(), out, &report)
			switch {
			case test.pushed && err != nil:
				t.Error(err)
			case !test.pushed && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf(old, test.version, test.revision))):
				t.Errorf("%v, want %s", err, fmt.Sprintf(old, test.version, test.revision))
			case test.pushed == (report.Len() == 0):
				t.Errorf("reported %q", report.String())
			}
		})
	}
}

// Images with changes that are in no commit may be older than the changes that there are now: no release and no other tag is of them.
func TestImagesOfNoCommitAreNotPushed(t *testing.T) {
	t.Parallel()
	all := specified(t)[:1]
	r, out := fakeRelease(t, all), t.TempDir()
	r.Revision = "c0ffee-dirty"
	if err := r.write(all, out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for tag, pushed := range map[string]bool{"devel-c0ffee": true, "v1.2.3": false, "latest": false} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
			t.Cleanup(server.Close)
			p := publication{Registry: strings.TrimPrefix(server.URL, "http://"), Tag: tag, Version: r.Version, Revision: r.Revision}
			err := p.push(t.Context(), out, io.Discard)
			switch refusal := "not pushed as " + strconv.Quote(tag); {
			case pushed && err != nil:
				t.Error(err)
			case !pushed && (err == nil || !strings.Contains(err.Error(), refusal)):
				t.Errorf("%v, want %s", err, refusal)
			}
		})
	}
}
