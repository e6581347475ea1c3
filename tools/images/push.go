package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push pushes the images of a folder, with all their architectures, to a registry, and reports their references by digest. Credentials are
// those of `docker login`, or of the helpers that ~/.docker/config.json names. A registry on this machine may be without TLS.
func push(ctx context.Context, dir, registry, tag string, report io.Writer) error {
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
		ref, err := name.NewTag(registry+"/"+descriptor.Annotations[refName]+":"+tag, name.StrictValidation)
		if err != nil {
			return err
		}
		index, err := all.ImageIndex(descriptor.Digest)
		if err != nil {
			return err
		}
		if err := pusher.Push(ctx, ref, index); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
		fmt.Fprintf(report, "%s@%s\n", ref.Context(), descriptor.Digest)
	}
	return nil
}
