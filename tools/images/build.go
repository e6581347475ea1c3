package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// What is the same in all images.
const (
	source   = "https://github.com/capstan-io/capstan"
	licenses = "Apache-2.0"
)

// Annotations by which programs find an image in a layout.
const (
	refName        = "org.opencontainers.image.ref.name" // the OCI's: skopeo, crane, docker
	containerdName = "io.containerd.image.name"
)

// Labels that say what an image was built from.
const (
	versionLabel  = "org.opencontainers.image.version"
	revisionLabel = "org.opencontainers.image.revision"
)

// Files and folders of what is written.
const (
	layoutDir   = "oci"
	digestsFile = "digests.txt"
)

// release is what images are built from.
type release struct {
	// Bin has a folder with the programs for each architecture.
	Bin string
	// Architectures are the names of these folders, as Go has them.
	Architectures []string
	// Registry is where the images are going to be, with the first part of the path, for the names in archives.
	Registry string
	// Version is that of the programs, and the tag. Revision is the commit, and Created its time.
	Version, Revision string
	Created           time.Time
}

// built is an image with all its architectures.
type built struct {
	image
	index v1.ImageIndex
	sizes []sizes
}

// sizes are the bytes of an image of one architecture, as it is pulled and as it is unpacked.
type sizes struct {
	architecture         string
	compressed, unpacked int64
}

// write builds all images, and writes them into a folder: an OCI layout with all of them, an archive of each, and a list of the digests.
func (r release) write(all []image, dir string, report io.Writer) error {
	if err := prepare(dir); err != nil {
		return err
	}
	together, err := layout.Write(filepath.Join(dir, layoutDir), empty.Index)
	if err != nil {
		return err
	}
	b := builder{release: r, programs: map[string]v1.Layer{}}
	var digests strings.Builder
	table := tabwriter.NewWriter(report, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tARCHITECTURE\tCOMPRESSED\tUNPACKED\tDIGEST")
	for _, i := range all {
		image, err := b.build(i)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		if err := errors.Join(r.add(together, image), r.archive(dir, image)); err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		digest, err := image.index.Digest()
		if err != nil {
			return err
		}
		for _, name := range i.repositories() {
			fmt.Fprintf(&digests, "%s %s\n", digest, name)
		}
		for _, s := range image.sizes {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", strings.Join(i.repositories(), ", "), s.architecture, megabytes(s.compressed),
				megabytes(s.unpacked), digest)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, digestsFile), []byte(digests.String()), 0o600); err != nil {
		return err
	}
	return table.Flush()
}

func megabytes(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// prepare empties the folder of what an earlier build has written. It refuses a folder with anything else in place of it.
func prepare(dir string) error {
	old := filepath.Join(dir, layoutDir)
	if _, err := os.Stat(filepath.Join(old, "oci-layout")); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(old); err == nil {
			return fmt.Errorf("%s is there and no OCI layout; remove it, or choose another folder", old)
		}
		return os.MkdirAll(dir, 0o750)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.tar"))
	if err != nil {
		return err
	}
	for _, path := range append(archives, old, filepath.Join(dir, digestsFile)) {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// add adds an image to a layout under all its names.
func (r release) add(l layout.Path, b *built) error {
	for _, repository := range b.repositories() {
		tag, err := r.tag(repository)
		if err != nil {
			return err
		}
		annotations := map[string]string{refName: repository, containerdName: tag.Name()}
		if err := l.AppendIndex(b.index, layout.WithAnnotations(annotations)); err != nil {
			return err
		}
	}
	return nil
}

func (r release) tag(repository string) (name.Tag, error) {
	return name.NewTag(r.Registry+"/"+repository+":"+r.Version, name.StrictValidation)
}

// archive writes an archive with the image alone.
func (r release) archive(dir string, b *built) error {
	alone, err := os.MkdirTemp(dir, ".archive-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(alone)
	l, err := layout.Write(alone, empty.Index)
	if err != nil {
		return err
	}
	if err := r.add(l, b); err != nil {
		return err
	}
	return writeArchive(filepath.Join(dir, b.Name+".tar"), alone)
}

// builder builds images that share layers.
type builder struct {
	release
	base     v1.Layer
	programs map[string]v1.Layer // by their paths
}

func (b *builder) build(i image) (*built, error) {
	result := &built{image: i, index: mutate.IndexMediaType(empty.Index, types.OCIImageIndex)}
	labels := b.labels(i)
	for _, architecture := range b.Architectures {
		platform := &v1.Platform{OS: "linux", Architecture: architecture}
		layers, err := b.layers(i, architecture)
		if err != nil {
			return nil, err
		}
		img, err := b.assemble(i, labels, platform, layers)
		if err != nil {
			return nil, err
		}
		result.index = mutate.AppendManifests(result.index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}})
		size, err := measure(architecture, img)
		if err != nil {
			return nil, err
		}
		result.sizes = append(result.sizes, size)
	}
	annotated, ok := mutate.Annotations(result.index, labels).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("an index with annotations is no index any more")
	}
	result.index = annotated
	return result, nil
}

func (b *builder) labels(i image) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title": i.Title, prefix + "description": i.Description, prefix + "licenses": licenses, prefix + "source": source,
		versionLabel: b.Version, revisionLabel: b.Revision, prefix + "created": b.Created.UTC().Format(time.RFC3339),
	}
}

// layers are, from the one that changes least: what all images have, each program, and the names of the programs.
func (b *builder) layers(i image, architecture string) (layers []v1.Layer, err error) {
	if b.base == nil {
		if b.base, err = baseLayer(); err != nil {
			return nil, err
		}
	}
	layers = []v1.Layer{b.base}
	for _, program := range i.Programs {
		path := filepath.Join(b.Bin, architecture, program)
		if b.programs[path] == nil {
			if b.programs[path], err = programLayer(path); err != nil {
				return nil, err
			}
		}
		layers = append(layers, b.programs[path])
	}
	names, err := namesLayer(i.Names)
	if err != nil {
		return nil, err
	}
	if names != nil {
		layers = append(layers, names)
	}
	return layers, nil
}

func (b *builder) assemble(i image, labels map[string]string, platform *v1.Platform, layers []v1.Layer) (v1.Image, error) {
	created := v1.Time{Time: b.Created.UTC()}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: platform.Architecture, OS: platform.OS, Created: created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/" + i.Programs[0]},
			Env:        []string{"PATH=/"},
			User:       fmt.Sprintf("%d:%d", user, user),
			WorkingDir: "/",
			Labels:     labels,
		},
	})
	if err != nil {
		return nil, err
	}
	var parts []mutate.Addendum
	for _, layer := range layers {
		parts = append(parts, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "make images"}})
	}
	return mutate.Append(img, parts...)
}

// measure adds up the layers of an image.
func measure(architecture string, img v1.Image) (sizes, error) {
	s := sizes{architecture: architecture}
	layers, err := img.Layers()
	if err != nil {
		return s, err
	}
	for _, layer := range layers {
		compressed, err := layer.Size()
		if err != nil {
			return s, err
		}
		content, err := layer.Uncompressed()
		if err != nil {
			return s, err
		}
		unpacked, err := io.Copy(io.Discard, content)
		if err := errors.Join(err, content.Close()); err != nil {
			return s, err
		}
		s.compressed, s.unpacked = s.compressed+compressed, s.unpacked+unpacked
	}
	return s, nil
}
