package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/manifest"
)

// manifestExtensions are the files that are read in a folder; files that are named are read whatever they end in.
var manifestExtensions = []string{".yaml", ".yml", ".json"}

// manifestFiles are the values of -f: files, folders, or - for standard input.
type manifestFiles struct {
	paths     []string
	recursive bool
	stdin     io.Reader
}

// read returns the objects in the files, in order. The error names the file, and the object as far as known.
func (m manifestFiles) read() ([]workv1.Manifest, error) {
	if len(m.paths) == 0 {
		return nil, errors.New("-f is missing: name the files with the objects, or - for standard input")
	}
	var manifests []workv1.Manifest
	for _, path := range m.paths {
		found, err := m.readPath(path)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, found...)
	}
	if len(manifests) == 0 {
		return nil, fmt.Errorf("-f: no Kubernetes object in %q", m.paths)
	}
	return manifests, checkUnique(manifests)
}

func (m manifestFiles) readPath(path string) ([]workv1.Manifest, error) {
	if path == "-" {
		return decodeManifests("standard input", m.stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	}
	if !info.IsDir() {
		return readFile(path)
	}
	var manifests []workv1.Manifest
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("-f: %w", err)
		case entry.IsDir() && file != path && !m.recursive:
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(manifestExtensions, filepath.Ext(file)):
			return nil
		}
		found, err := readFile(file)
		manifests = append(manifests, found...)
		return err
	})
	return manifests, err
}

func readFile(path string) ([]workv1.Manifest, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("-f: %w", err)
	}
	defer file.Close()
	return decodeManifests(path, file)
}

// decodeManifests reads YAML documents, or JSON objects, one after the other. Lists are taken apart.
func decodeManifests(name string, content io.Reader) ([]workv1.Manifest, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bufio.NewReader(content), 4096)
	var manifests []workv1.Manifest
	for document := 1; ; document++ {
		var raw runtime.RawExtension
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return manifests, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, document, err)
		}
		if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
			continue // nothing but comments
		}
		found, err := toManifests(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, document, err)
		}
		manifests = append(manifests, found...)
	}
}

func toManifests(raw runtime.RawExtension) ([]workv1.Manifest, error) {
	var list struct {
		Kind  string                 `json:"kind"`
		Items []runtime.RawExtension `json:"items"`
	}
	if err := json.Unmarshal(raw.Raw, &list); err == nil && list.Kind == "List" {
		var manifests []workv1.Manifest
		for _, item := range list.Items {
			found, err := toManifests(item)
			if err != nil {
				return nil, err
			}
			manifests = append(manifests, found...)
		}
		return manifests, nil
	}
	decoded := manifest.Decode([]workv1.Manifest{{RawExtension: raw}})[0]
	if decoded.Err != nil {
		return nil, decoded.Err
	}
	clean, err := decoded.Object.MarshalJSON()
	return []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: clean}}}, err
}

// checkUnique refuses two manifests for one object: the hub would do so too, and could not name the files.
func checkUnique(manifests []workv1.Manifest) error {
	seen := map[manifest.Identity]bool{}
	for _, decoded := range manifest.Decode(manifests) {
		identity := manifest.Identify(decoded.Object)
		if seen[identity] {
			return fmt.Errorf("-f: %s is there twice: leave one of them out", identity)
		}
		seen[identity] = true
	}
	return nil
}
