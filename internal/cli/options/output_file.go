package options

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

// OutputFile is a file that a flag names, for content that only its owner may read.
type OutputFile struct {
	// Flag is the name of the flag, with the dashes.
	Flag string
	// Path is the value of the flag.
	Path string
	// Mode is that of a regular file.
	Mode fs.FileMode
}

// Check fails if the file cannot be written, and leaves nothing behind. No folders are made: a misspelt one is a mistake.
func (f OutputFile) Check() error {
	switch info, err := os.Stat(f.Path); {
	case err == nil && streamAt(info) != nil:
		return nil
	case err == nil && info.IsDir():
		return fmt.Errorf("%s: %s is a folder: name a file in it", f.Flag, f.Path)
	case err == nil && !info.Mode().IsRegular():
		return f.explain(unix.Access(f.Path, unix.W_OK))
	}
	target, err := f.target()
	if err != nil {
		return err
	}
	folder := filepath.Dir(target)
	if info, err := os.Stat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("%s: %s: there is no folder %s: create it, or choose another", f.Flag, f.Path, folder)
	}
	if err := unix.Access(folder, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("%s: %s: folder %s cannot be written to: %w: choose another", f.Flag, f.Path, folder, err)
	}
	return nil
}

// Write writes the file. A regular file is replaced as a whole, also one that a link leads to; standard output, a device or a pipe is
// written to.
func (f OutputFile) Write(content []byte) error {
	if err := f.Check(); err != nil {
		return err
	}
	if f.InPlace() {
		return f.explain(writeInPlace(f.Path, content))
	}
	target, err := f.target()
	if err != nil {
		return err
	}
	if err := atomicfile.Write(target, content, f.Mode); err != nil {
		return fmt.Errorf("%s: %w", f.Flag, err)
	}
	return nil
}

// InPlace reports whether the file is written to and not replaced: there is no content to read in it.
func (f OutputFile) InPlace() bool {
	info, err := os.Stat(f.Path)
	return err == nil && (streamAt(info) != nil || !info.Mode().IsRegular())
}

// target is where links lead from the path.
func (f OutputFile) target() (string, error) {
	if target, err := filepath.EvalSymlinks(f.Path); err == nil {
		return target, nil
	}
	if link, err := os.Readlink(f.Path); err == nil {
		return "", fmt.Errorf("%s: %s is a link to %s, which is not there: create that, or choose another", f.Flag, f.Path, link)
	}
	return f.Path, nil // it is not there yet
}

func (f OutputFile) explain(err error) error {
	if err != nil {
		return fmt.Errorf("%s: %s cannot be written: %w: choose another", f.Flag, f.Path, err)
	}
	return nil
}

// writeInPlace writes to what is no regular file, or is one that a stream of the process leads to.
func writeInPlace(path string, content []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if stream := streamAt(info); stream != nil {
		_, err := stream.Write(content)
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}

// streamAt is the stream of the process that leads to a file, nil if none does. What is written to it follows what was written before.
func streamAt(file fs.FileInfo) *os.File {
	for _, stream := range []*os.File{os.Stdout, os.Stderr} {
		if info, err := stream.Stat(); err == nil && os.SameFile(info, file) {
			return stream
		}
	}
	return nil
}

// CheckOutputFile fails if the file of --output-file, if there is one, cannot be written.
func CheckOutputFile(file string) error {
	if file == "" {
		return nil
	}
	return outputFile(file).Check()
}

// WriteOutputFile writes the file of --output-file, which only its owner can read.
func WriteOutputFile(file string, content []byte) error { return outputFile(file).Write(content) }

func outputFile(file string) OutputFile {
	return OutputFile{Flag: "--output-file", Path: file, Mode: 0o600}
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
