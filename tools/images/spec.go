package main

import (
	_ "embed"
	"fmt"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed images.yaml
var specification []byte

// image is what an image has in it.
type image struct {
	// Name is that of the repository, without the registry.
	Name string `json:"name"`
	// Title and Description are for the labels.
	Title       string `json:"title"`
	Description string `json:"description"`
	// Programs are at the root of the file system. The first is the entrypoint.
	Programs []string `json:"programs"`
	// Names are links at the root of the file system, by the program that they lead to.
	Names map[string][]string `json:"names"`
	// Aliases are other names of the image.
	Aliases []string `json:"aliases"`
}

// repositories are all names of the image.
func (i image) repositories() []string { return append([]string{i.Name}, i.Aliases...) }

// images reads the specification.
func images() ([]image, error) {
	var all []image
	if err := yaml.UnmarshalStrict(specification, &all); err != nil {
		return nil, fmt.Errorf("images.yaml: %w", err)
	}
	taken := map[string]bool{}
	for _, i := range all {
		for _, name := range i.repositories() {
			if taken[name] {
				return nil, fmt.Errorf("images.yaml: two images have the name %s", name)
			}
			taken[name] = true
		}
		for program := range i.Names {
			if !slices.Contains(i.Programs, program) {
				return nil, fmt.Errorf("images.yaml: names of %s in %s, which does not have it", program, i.Name)
			}
		}
	}
	return all, nil
}
