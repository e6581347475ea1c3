package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the number of the user and the group that programs run as, the one that images without a distribution have by custom.
const user = 65532

// epoch is the time of all files: a layer with the same content is the same in all versions.
var epoch = time.Unix(0, 0).UTC()

// entry is a member of a layer.
type entry struct {
	tar.Header
	content []byte
}

func folder(name string, mode int64) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}}
}

func file(name string, content []byte) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}, content: content}
}

func link(name, target string) entry {
	return entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

// baseLayer is what all images have: the user, certificate authorities, and a place for temporary files.
func baseLayer() (v1.Layer, error) {
	roots, err := rootCertificates()
	if err != nil {
		return nil, err
	}
	return layerOf(
		folder("etc", 0o755),
		file("etc/group", fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", user)),
		file("etc/passwd", fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", user, user)),
		folder("etc/ssl", 0o755),
		folder("etc/ssl/certs", 0o755),
		file("etc/ssl/certs/ca-certificates.crt", roots),
		folder("tmp", 0o1777),
	)
}

// namesLayer has the links to programs; nil if there are none.
func namesLayer(names map[string][]string) (v1.Layer, error) {
	var entries []entry
	for _, program := range slices.Sorted(maps.Keys(names)) {
		for _, name := range names[program] {
			entries = append(entries, link(name, program))
		}
	}
	if len(entries) == 0 {
		return nil, nil
	}
	return layerOf(entries...)
}

// layerOf is a layer with few small members.
func layerOf(entries ...entry) (v1.Layer, error) {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	for _, e := range entries {
		if err := writeHeader(w, e.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return layerFrom(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil })
}

// writeHeader writes a header that says nothing about the machine it is written on.
func writeHeader(w *tar.Writer, header tar.Header) error {
	header.ModTime, header.Format = epoch, tar.FormatUSTAR
	return w.WriteHeader(&header)
}

// programLayer has a program at the root of the file system.
func programLayer(path string) (v1.Layer, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: build the programs first, as `make images` does", err)
	}
	var head bytes.Buffer
	header := tar.Header{Typeflag: tar.TypeReg, Name: filepath.Base(path), Mode: 0o755, Size: info.Size()}
	if err := writeHeader(tar.NewWriter(&head), header); err != nil {
		return nil, err
	}
	// The content is filled up to a whole block, and two empty ones end the archive.
	tail := make([]byte, (blockSize-info.Size()%blockSize)%blockSize+2*blockSize)
	return layerFrom(func() (io.ReadCloser, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head.Bytes()), f, bytes.NewReader(tail)), f}, nil
	})
}

// blockSize is that of a tar archive.
const blockSize = 512

// layerFrom compresses an archive, once.
func layerFrom(open tarball.Opener) (v1.Layer, error) {
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}
