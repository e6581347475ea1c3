// Package manifests reads the Kubernetes objects that users name with -f and -k.
package manifests

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/manifest"
)

// standardInput is what - stands for.
const standardInput = "standard input"

// manifestExtensions are the files that are read in a folder; files that are named are read whatever they end in.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// manifestsLimit is how much is read from a URL at most, in bytes: more than fits into a ManifestWork by far.
const manifestsLimit = 16 << 20

// Files are the values of -f: files, folders, URLs, or - for standard input. Instead of them there may be the folder of
// a kustomization.
type Files struct {
	Flag  string // for messages
	Paths []string
	Stdin io.Reader
	// Note prints what users may miss.
	Note func(format string, args ...any)

	recursive     bool
	kustomization string
}

// Add adds the flags to a command.
func (m *Files) Add(global *options.Global, command *cobra.Command) {
	m.Flag, m.Stdin, m.Note = "-f", global.In, global.Note
	flags := command.Flags()
	flags.StringSliceVarP(&m.Paths, "filename", "f", nil, "files, folders or URLs with the objects, in YAML or JSON; - is standard input")
	flags.BoolVarP(&m.recursive, "recursive", "R", true, "read the folders in folders, too")
	flags.StringVarP(&m.kustomization, "kustomize", "k", "", "folder with a kustomization.yaml that makes the objects, instead of -f")
	command.MarkFlagsMutuallyExclusive("filename", "kustomize")
	if err := command.MarkFlagDirname("kustomize"); err != nil {
		panic(err) // the flag is missing
	}
}

// Document is an object as it was found, and where.
type Document struct {
	Where string
	Raw   runtime.RawExtension
}

// Read returns the objects in the files, in order. The error says where it found what is wrong.
func (m Files) Read(ctx context.Context) ([]workv1.Manifest, error) {
	if m.kustomization != "" {
		manifests, err := m.readKustomization()
		return manifests, options.FlagError("-k", err)
	}
	if len(m.Paths) == 0 {
		return nil, fmt.Errorf("%s is missing: name the files with the objects, - for standard input, or a folder with a kustomization with -k",
			m.Flag)
	}
	manifests, err := m.readPaths(ctx)
	return manifests, options.FlagError(m.Flag, err)
}

func (m Files) readPaths(ctx context.Context) ([]workv1.Manifest, error) {
	var documents []Document
	for _, path := range m.Paths {
		found, err := m.readPath(ctx, path)
		if err != nil {
			return nil, err
		}
		documents = append(documents, found...)
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("no Kubernetes object in %s", m)
	}
	return m.toManifests(documents)
}

// String names the files for messages.
func (m Files) String() string {
	names := slices.Clone(m.Paths)
	for i := range names {
		if names[i] == "-" {
			names[i] = standardInput
		}
	}
	return strings.Join(names, ", ")
}

func (m Files) readPath(ctx context.Context, path string) ([]Document, error) {
	switch {
	case path == "-":
		return splitDocuments(standardInput, m.Stdin)
	case strings.HasPrefix(path, "https://") || strings.HasPrefix(path, "http://"):
		return readURL(ctx, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readFile(path)
	}
	var documents []Document
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != path && !m.recursive:
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(manifestExtensions, filepath.Ext(file)):
			return nil
		}
		found, err := readFile(file)
		documents = append(documents, found...)
		return err
	})
	return documents, err
}

// Read reads a file, or standard input if its name is -.
func Read(path string, stdin io.Reader) ([]Document, error) {
	if path == "-" {
		return splitDocuments(standardInput, stdin)
	}
	return readFile(path)
}

func readFile(path string) ([]Document, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return splitDocuments(path, file)
}

func readURL(ctx context.Context, url string) ([]Document, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: the server answers %s: check the URL", url, response.Status)
	}
	return splitDocuments(url, http.MaxBytesReader(nil, response.Body, manifestsLimit))
}

// splitDocuments reads YAML documents, or JSON objects, one after the other. Lists are taken apart.
func splitDocuments(name string, content io.Reader) ([]Document, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(content), 4096)
	var documents []Document
	for n := 1; ; n++ {
		where := fmt.Sprintf("%s: document %d", name, n)
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		documents = append(documents, flatten(Document{where, raw})...)
	}
}

// flatten returns the items of a list, nothing for a document that has only comments, and any other document itself.
func flatten(d Document) []Document {
	if len(d.Raw.Raw) == 0 || string(d.Raw.Raw) == "null" {
		return nil
	}
	var list struct {
		Kind  string                 `json:"kind"`
		Items []runtime.RawExtension `json:"items"`
	}
	if err := json.Unmarshal(d.Raw.Raw, &list); err != nil || list.Kind != "List" {
		return []Document{d} // what is wrong with it is found when it is decoded
	}
	var items []Document
	for i, item := range list.Items {
		items = append(items, flatten(Document{fmt.Sprintf("%s: item %d", d.Where, i+1), item})...)
	}
	return items
}

// documentError says where in the files a manifest is that cannot be used. The error itself only has its ordinal in the work.
type documentError struct {
	where   string
	ordinal int
	error
}

func (e documentError) Error() string {
	return e.where + strings.TrimPrefix(e.error.Error(), fmt.Sprintf("manifest %d", e.ordinal))
}

// toManifests checks the objects, and leaves out what only the cluster they were exported from can give, with a note of what a user may
// miss. The hub refuses two manifests for one object; here the files can be named.
func (m Files) toManifests(documents []Document) ([]workv1.Manifest, error) {
	manifests := make([]workv1.Manifest, len(documents))
	for i := range documents {
		manifests[i].RawExtension = documents[i].Raw
	}
	type object struct {
		schema.GroupKind
		namespace, name string
	}
	seen := map[object]string{}
	for i, decoded := range manifest.Decode(manifests) {
		where := documents[i].Where
		if decoded.Err != nil {
			return nil, documentError{where, i, decoded.Err}
		}
		identity := manifest.Identify(decoded.Object)
		same := object{identity.GroupKind(), identity.Namespace, identity.Name}
		if first, twice := seen[same]; twice {
			return nil, fmt.Errorf("%s: %s is in %s already: leave one of them out", where, identity, first)
		}
		seen[same] = where
		if dropped := droppedFrom(documents[i].Raw.Raw); len(dropped) > 0 {
			m.Note("Warning: %s: %s: left out, because the cluster that it was exported from has set it: %s", where, identity,
				strings.Join(dropped, ", "))
		}
		clean, err := decoded.Object.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		manifests[i].Raw = clean
	}
	return manifests, nil
}

// droppedFrom are the fields of a manifest that are not applied.
func droppedFrom(raw []byte) []string {
	object := &unstructured.Unstructured{}
	if json.Unmarshal(raw, &object.Object) != nil {
		return nil
	}
	return manifest.DropExported(object)
}

// SameWorkload compares what the manifests say, not how they are written.
func SameWorkload(one, other workv1.ManifestsTemplate) bool {
	return equality.Semantic.DeepEqual(manifest.Decode(one.Manifests), manifest.Decode(other.Manifests))
}
