package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
)

// writeArchive writes the files of a folder as an archive, in the order of their names.
func writeArchive(path, dir string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	root := os.DirFS(dir)
	err = fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return archiveFile(w, root, name)
	})
	return errors.Join(err, w.Close(), out.Close())
}

func archiveFile(w *tar.Writer, root fs.FS, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := writeHeader(w, tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
