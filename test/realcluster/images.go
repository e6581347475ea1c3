package realcluster

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/realcluster/node"
)

// TestImage is an image that every cluster has: busybox with its tools, such as sh, wget and nslookup, and testpod, whose commands are in
// testpod/main.go.
const TestImage = "localhost/test:latest"

// image is a name of one, what it runs if a pod does not say, and as whom, if that is not root.
type image struct {
	name    string
	command []string
	user    string
}

// testImages makes an archive of images that have the files of TestImage.
func testImages(images ...image) ([]byte, error) {
	layer, err := testLayer()
	if err != nil {
		return nil, err
	}
	return imagesOf(layer, images...)
}

// programImage makes an archive of an image that has a program at its root, as those of Open Cluster Management have.
func programImage(name, path string) ([]byte, error) {
	program, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	layer, err := archive([]file{{name: "tmp/", mode: 0o777}, {name: filepath.Base(path), mode: 0o755, content: program}})
	if err != nil {
		return nil, err
	}
	return imagesOf(layer, image{name: name, user: "10001"})
}

// imagesOf makes an archive of images that have the same files.
func imagesOf(layer []byte, images ...image) ([]byte, error) {
	type manifest struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifests []manifest
	content := []file{{name: "layer.tar", mode: 0o644, content: layer}}
	for _, image := range images {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH,
			"os":           "linux",
			"config":       map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": image.command, "User": image.user},
			"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		})
		if err != nil {
			return nil, err
		}
		name := digest(config) + ".json"
		content = append(content, file{name: name, mode: 0o644, content: config})
		manifests = append(manifests, manifest{Config: name, RepoTags: []string{image.name}, Layers: []string{"layer.tar"}})
	}
	encoded, err := json.Marshal(manifests)
	if err != nil {
		return nil, err
	}
	return archive(append(content, file{name: "manifest.json", mode: 0o644, content: encoded}))
}

// preloaded are the images that a cluster begins with.
func preloaded() ([]byte, error) {
	return testImages(
		image{name: node.PauseImage, command: []string{"testpod", "pause"}},
		image{name: TestImage, command: []string{"sh"}},
	)
}

// testLayer has busybox under the names of all of its tools, and testpod.
func testLayer() ([]byte, error) {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return nil, err
	}
	tools, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	testpod, err := env.Binary("testpod")
	if err != nil {
		return nil, err
	}
	content := []file{
		{name: "bin/", mode: 0o755}, {name: "etc/", mode: 0o755}, {name: "tmp/", mode: 0o777},
		{name: "etc/passwd", mode: 0o644, content: []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nnobody:x:65534:\n")},
	}
	for name, from := range map[string]string{"bin/busybox": busybox, "bin/testpod": testpod} {
		program, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		content = append(content, file{name: name, mode: 0o755, content: program})
	}
	for tool := range strings.FieldsSeq(string(tools)) {
		if tool != "busybox" {
			content = append(content, file{name: path.Join("bin", tool), target: "busybox"})
		}
	}
	return archive(content)
}

// file is one of an archive: a directory if its name ends with a slash, a symbolic link if it has a target.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
	target  string
}

func archive(files []file) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		switch {
		case f.target != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.target, 0o777
		case strings.HasSuffix(f.name, "/"):
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
