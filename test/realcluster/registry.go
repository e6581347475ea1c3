package realcluster

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Registry serves images to nodes, as a private registry does: by HTTP, to whoever has the password, who may also push some.
type Registry struct {
	// Host is the address at which nodes reach it, with which the names of its images begin.
	Host string
	// User and Password are those to pull and to push with.
	User, Password string

	mu      sync.Mutex
	content map[string][]byte // manifests, configurations and layers, by digest
	tags    map[string]string // digests, by REPOSITORY:TAG
	uploads map[string][]byte // what has come of blobs, by the name of the upload
	pulls   map[string]int    // by repository
}

// StartRegistry serves the images of archives until the test ends. Archives are OCI layouts, as "make images" writes them. The image
// ghcr.io/a/b:c of an archive is HOST/a/b:c. The test has to have a cluster: this machine has no HostIP without one.
func StartRegistry(t testing.TB, archives ...string) *Registry {
	t.Helper()
	r := newRegistry()
	for _, path := range archives {
		if err := r.addFile(path); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(HostIP, "0"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = listener.Addr().String()
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // until it is closed
	t.Cleanup(func() { _ = server.Close() })
	return r
}

func newRegistry() *Registry {
	return &Registry{User: "puller", Password: rand.Text(), content: map[string][]byte{}, tags: map[string]string{},
		uploads: map[string][]byte{}, pulls: map[string]int{}}
}

// DockerConfig is a Docker configuration with the password of a user of the registry.
func (r *Registry) DockerConfig(user, password string) string {
	return fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, r.Host, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

// Pulls is how often nodes with the password have asked for a tag of a repository, such as "capstan-io/capstan-hub". They do so at each
// pull, even of an image that they have.
func (r *Registry) Pulls(repository string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pulls[repository]
}

// addFile reads an archive.
func (r *Registry) addFile(path string) error {
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	defer opened.Close()
	return r.add(opened)
}

// add reads the files of an OCI layout.
func (r *Registry) add(layout io.Reader) error {
	for members := tar.NewReader(layout); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(members)
		if err != nil {
			return err
		}
		if sum, isBlob := strings.CutPrefix(header.Name, "blobs/sha256/"); isBlob {
			r.content["sha256:"+sum] = content
		}
		if header.Name == "index.json" {
			if err := r.addTags(content); err != nil {
				return err
			}
		}
	}
}

// addTags reads the names of the images of a layout.
func (r *Registry) addTags(index []byte) error {
	var images struct {
		Manifests []struct {
			Digest      string            `json:"digest"`
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	if err := json.Unmarshal(index, &images); err != nil {
		return err
	}
	for _, image := range images.Manifests {
		name := image.Annotations["io.containerd.image.name"]
		_, tag, found := strings.Cut(name, "/")
		if !found {
			return fmt.Errorf("index.json: an image has the name %q, want REGISTRY/REPOSITORY:TAG", name)
		}
		r.tags[tag] = image.Digest
	}
	return nil
}

// The paths of what the distribution API has: a manifest, by digest or tag, or a blob of a repository; and uploads of blobs.
var (
	requested = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([^/]+)$`)
	uploading = regexp.MustCompile(`^/v2/.+/blobs/uploads/([^/]*)$`)
)

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if user, password, _ := request.BasicAuth(); user != r.User || password != r.Password {
		w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
		http.Error(w, "the user or the password is wrong", http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // who sends it has left
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	upload, found := uploading.FindStringSubmatch(request.URL.Path), requested.FindStringSubmatch(request.URL.Path)
	switch {
	case upload != nil:
		r.upload(w, request, upload[1], body)
	case found == nil:
		http.NotFound(w, request)
	case request.Method == http.MethodPut && found[2] == "manifests":
		r.putManifest(w, found[1], found[3], body)
	default:
		r.serve(w, request, found[1], found[2], found[3])
	}
}

// upload takes a blob, which comes in three requests: POST begins, PATCH has the content, and PUT ends it.
func (r *Registry) upload(w http.ResponseWriter, request *http.Request, name string, body []byte) {
	if request.Method == http.MethodPost {
		name = rand.Text()
	}
	content := slices.Concat(r.uploads[name], body)
	if request.Method != http.MethodPut {
		r.uploads[name] = content
		w.Header().Set("Location", path.Join(path.Dir(request.URL.Path), name))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	delete(r.uploads, name)
	sum := "sha256:" + digest(content)
	if wanted := request.URL.Query().Get("digest"); wanted != sum {
		http.Error(w, fmt.Sprintf("the blob has the digest %s, want %s", sum, wanted), http.StatusBadRequest)
		return
	}
	r.content[sum] = content
	w.WriteHeader(http.StatusCreated)
}

func (r *Registry) putManifest(w http.ResponseWriter, repository, reference string, manifest []byte) {
	sum := "sha256:" + digest(manifest)
	r.content[sum] = manifest
	if reference != sum {
		r.tags[repository+":"+reference] = sum
	}
	w.WriteHeader(http.StatusCreated)
}

func (r *Registry) serve(w http.ResponseWriter, request *http.Request, repository, kind, digest string) {
	if tagged, isTag := r.tags[repository+":"+digest]; isTag && kind == "manifests" {
		digest = tagged
		r.pulls[repository]++
	}
	content, exists := r.content[digest]
	if !exists {
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", mediaType(kind, content))
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(content))
}

// mediaType is what a manifest says of itself.
func mediaType(kind string, content []byte) string {
	var manifest struct {
		MediaType string `json:"mediaType"`
	}
	if kind == "manifests" && json.Unmarshal(content, &manifest) == nil {
		return manifest.MediaType
	}
	return "application/octet-stream"
}

// UseRegistry tells the node that a registry is without TLS. Pods need a Secret to pull from there.
func (c *Cluster) UseRegistry(t testing.TB, r *Registry) {
	t.Helper()
	c.configureHost(t, r.Host, r, "")
}

// UseMirror has the nodes pull the images of another registry, such as ghcr.io, from this one. They have the password, so pods need no
// Secret.
func (c *Cluster) UseMirror(t testing.TB, of string, r *Registry) {
	t.Helper()
	credential := base64.StdEncoding.EncodeToString([]byte(r.User + ":" + r.Password))
	c.configureHost(t, of, r, fmt.Sprintf("[host.%q.header]\nAuthorization = %q\n", "http://"+r.Host, "Basic "+credential))
}

// configureHost writes the file that containerd reads whenever it pulls an image whose name begins with a host.
func (c *Cluster) configureHost(t testing.TB, host string, r *Registry, header string) {
	t.Helper()
	file := fmt.Sprintf("server = %[1]q\n[host.%[1]q]\ncapabilities = [\"pull\", \"resolve\"]\n", "http://"+r.Host) + header
	for _, n := range c.nodes {
		path := n.RegistryConfig(host)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(file), 0o600)
		}
		if err != nil {
			t.Fatalf("node %s: %v", n.Name, err)
		}
	}
}
