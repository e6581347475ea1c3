package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// publication is where images are pushed to, and what they are built from.
type publication struct {
	// Registry is that of the images, with the first part of the path.
	Registry string
	// Tag of the images.
	Tag string
	// Version and Revision are those that the images have to say of themselves. Those built for the tag have it as their version.
	Version, Revision string
}

// push pushes the images of a folder, with all their architectures, to a registry, and reports their references by digest. Credentials are
// those of `docker login`, or of the helpers that ~/.docker/config.json names. A registry on this machine may be without TLS.
func (p publication) push(ctx context.Context, dir string, report io.Writer) error {
	l, err := layout.FromPath(filepath.Join(dir, layoutDir))
	if err != nil {
		return fmt.Errorf("%w: build the images first, as `make images` does", err)
	}
	all, err := l.ImageIndex()
	if err != nil {
		return err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	pusher, err := remote.NewPusher(remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return err
	}
	for _, descriptor := range manifest.Manifests {
		ref, err := name.NewTag(p.Registry+"/"+descriptor.Annotations[refName]+":"+p.Tag, name.StrictValidation)
		if err != nil {
			return err
		}
		index, err := all.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		if err := p.check(index); err != nil {
			return err
		}
		if err := pusher.Push(ctx, ref, index); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
		fmt.Fprintf(report, "%s@%s\n", ref.Context(), descriptor.Digest)
	}
	return nil
}

// dirty is how the revision ends of what was built with changes that are in no commit.
const dirty = "-dirty"

// check refuses images of another version or commit, which the folder has if it was written before. With changes that are in no commit,
// nobody knows whether it was: such images have a tag by default that says so, and no other.
func (p publication) check(index v1.ImageIndex) error {
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	version, revision := manifest.Annotations[versionLabel], manifest.Annotations[revisionLabel]
	if strings.HasSuffix(revision, dirty) && !strings.HasPrefix(p.Tag, "devel") {
		return fmt.Errorf("the images are of commit %q, with changes that are in no commit, and are not pushed as %q: commit them and run "+
			"`make images` again, or leave VERSION and TAG out", revision, p.Tag)
	}
	if revision == p.Revision && (version == p.Version || version == p.Tag) {
		return nil
	}
	return fmt.Errorf("the images are of version %q and commit %q, and not of version %q and commit %q: run `make images` again, "+
		"with the same VERSION and TAG", version, revision, p.Version, p.Revision)
}
