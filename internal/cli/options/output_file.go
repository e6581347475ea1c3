package options

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/cli/playground"
)

// CheckOutputFile fails if the file of --output-file, if there is one, cannot be written because of its folder. No folders are
// made: a misspelt one is a mistake.
func CheckOutputFile(file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return fmt.Errorf("--output-file: %s: there is no folder %s: create it, or choose another", file, filepath.Dir(file))
	}
	return nil
}

// WriteOutputFile writes the file of --output-file, which only its owner can read.
func WriteOutputFile(file string, content []byte) error {
	if err := CheckOutputFile(file); err != nil {
		return err
	}
	if err := playground.WriteSecretFile(file, content); err != nil {
		return fmt.Errorf("--output-file: %w", err)
	}
	return nil
}

// WriteApplied writes objects that were applied to the file of --output-file, if there is one.
func (g *Global) WriteApplied(file string, objects []any) error {
	if file == "" {
		return nil
	}
	var content bytes.Buffer
	for _, object := range objects {
		one, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		fmt.Fprintf(&content, "---\n%s", one)
	}
	if err := WriteOutputFile(file, content.Bytes()); err != nil {
		return err
	}
	g.Note("What was applied is in %s.", file)
	return nil
}
