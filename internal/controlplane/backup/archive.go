// Package backup has what a standalone hub keeps, its objects and its keys, in one file: written while the hub runs, checked, and made a
// hub again. Files that users have given the hub are not in it, but named.
package backup

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// formatVersion is that of the backups that this program writes, and the latest that it reads.
const formatVersion = 1

// longestDescription is how many bytes descriptionFile may have, which is read before anything has been checked.
const longestDescription = 1 << 20

// The files of a backup, in this order. It is a tar archive, compressed by gzip.
const (
	descriptionFile = "backup.json"
	keysFolder      = "cert" // with the files of the folder of that name in the data directory
	storageFile     = "etcd.db"
	checksumsFile   = "SHA256SUMS" // of all others: a backup without it was cut off
)

// Description says what a backup is of.
type Description struct {
	// FormatVersion is that of the backup.
	FormatVersion int `json:"formatVersion"`
	// Created is when the hub was as the backup has it.
	Created time.Time `json:"created"`
	// Hub is the URL of the hub.
	Hub string `json:"hub"`
	// Version is that of the program.
	Version string `json:"version"`
	// Prefix is that of all keys in the etcd.
	Prefix string `json:"prefix"`
	// EtcdDirectory is the folder that EtcdDirectoryFlag has named; empty if there was no such flag, or if the backup is of a program that did
	// not record it.
	EtcdDirectory string `json:"etcdDirectory,omitempty"`
	// StorageBytes is the size of the database of the etcd.
	StorageBytes int64 `json:"storageBytes"`
	// Encryption are the providers of EncryptionFlag that encrypt Secrets at rest, such as aescbc; empty if none does, or if the backup is of
	// a program that did not record it.
	Encryption []string `json:"encryption,omitempty"`
	// Lacks are the files that a hub needs besides to be what it was; empty also if the backup is of a program that did not record them.
	Lacks []File `json:"lacks,omitempty"`
}

// archive is a backup that is being written.
type archive struct {
	compressed *gzip.Writer
	files      *tar.Writer
	created    time.Time
	checksums  map[string]string
}

func newArchive(w io.Writer, created time.Time) *archive {
	compressed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is valid
	return &archive{compressed: compressed, files: tar.NewWriter(compressed), created: created, checksums: map[string]string{}}
}

// add adds a file, whose content is of that size.
func (a *archive) add(name string, size int64, writeTo func(io.Writer) error) error {
	header := &tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: a.created, Format: tar.FormatPAX}
	if err := a.files.WriteHeader(header); err != nil {
		return err
	}
	sum := sha256.New()
	if err := writeTo(io.MultiWriter(a.files, sum)); err != nil {
		return err
	}
	a.checksums[name] = hex.EncodeToString(sum.Sum(nil))
	return nil
}

func (a *archive) addContent(name string, content []byte) error {
	return a.add(name, int64(len(content)), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// close ends the archive with the checksums.
func (a *archive) close() error {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.checksums)) {
		fmt.Fprintf(&lines, "%s  %s\n", a.checksums[name], name)
	}
	if err := a.addContent(checksumsFile, []byte(lines.String())); err != nil {
		return err
	}
	return errors.Join(a.files.Close(), a.compressed.Close())
}

// Read reads a backup to its end and checks it, unless ctx ends first. Meanwhile it hands the files with keys and the database to save,
// which reads their content; nil saves nothing. What was saved is a backup only if Read returns no error.
func Read(ctx context.Context, r io.Reader, progress *Progress, save func(name string, content io.Reader) error) (*Description, error) {
	compressed, err := gzip.NewReader(bufio.NewReader(readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})))
	if err != nil {
		return nil, fmt.Errorf("this is no backup of a hub: %w", err)
	}
	reading := &reading{files: tar.NewReader(compressed), progress: progress, save: save, checksums: map[string]string{}}
	err = reading.run()
	if err == nil {
		// The end of the archive, with a checksum of gzip's own.
		_, err = io.Copy(io.Discard, compressed) //nolint:gosec // it is kept nowhere
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = errors.New("the backup is cut off: its end is missing")
	}
	return reading.description, err
}

type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// reading is a backup that is being read.
type reading struct {
	files       *tar.Reader
	progress    *Progress
	save        func(name string, content io.Reader) error
	description *Description
	checksums   map[string]string
}

func (r *reading) run() error {
	if err := r.readDescription(); err != nil {
		return err
	}
	for {
		header, err := r.files.Next()
		if err != nil {
			return err
		}
		switch {
		case header.Name == checksumsFile:
			return r.check()
		case header.Name == storageFile:
			if err := r.readFile(header.Name, r.progress.reading(r.files, header.Size)); err != nil {
				return err
			}
		case isKeyFile(header.Name):
			if err := r.readFile(header.Name, r.files); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the backup has a file %q, which backups of hubs do not have", header.Name)
		}
	}
}

// isKeyFile reports whether a path stays in the folder of keys.
func isKeyFile(name string) bool {
	return strings.HasPrefix(name, keysFolder+"/") && path.Clean(name) == name
}

func (r *reading) readDescription() error {
	header, err := r.files.Next()
	if err != nil {
		return err
	}
	if header.Name != descriptionFile {
		return fmt.Errorf("this is no backup of a hub: it begins with %q, not %s", header.Name, descriptionFile)
	}
	if header.Size > longestDescription {
		return fmt.Errorf("%s of the backup has %d bytes, and none has more than %d", descriptionFile, header.Size, longestDescription)
	}
	content, err := io.ReadAll(r.sum(descriptionFile, r.files))
	if err != nil {
		return err
	}
	description := &Description{}
	if err := json.Unmarshal(content, description); err != nil {
		return fmt.Errorf("read %s of the backup: %w", descriptionFile, err)
	}
	if description.FormatVersion != formatVersion {
		return fmt.Errorf("the backup has the format version %d, and this program reads %d; use a program of version %s",
			description.FormatVersion, formatVersion, description.Version)
	}
	r.description = description
	return nil
}

func (r *reading) readFile(name string, content io.Reader) error {
	content = r.sum(name, content)
	if r.save != nil {
		if err := r.save(name, content); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, content)
	return err
}

// sum returns a reader of the content that writes down the checksum when it has been read to its end.
func (r *reading) sum(name string, content io.Reader) io.Reader {
	sum := sha256.New()
	return &atEnd{Reader: io.TeeReader(content, sum), do: func() { r.checksums[name] = hex.EncodeToString(sum.Sum(nil)) }}
}

// atEnd does something at the end of what it reads.
type atEnd struct {
	io.Reader
	do func()
}

func (r *atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		r.do()
	}
	return n, err
}

// check compares what was read with the checksums.
func (r *reading) check() error {
	content, err := io.ReadAll(r.files)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		want, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if r.checksums[name] != want {
			return fmt.Errorf("the backup is damaged: %s is not what was written", name)
		}
		delete(r.checksums, name)
	}
	if len(r.checksums) > 0 {
		return fmt.Errorf("the backup is damaged: %s has no checksum of %s", checksumsFile, slices.Min(slices.Collect(maps.Keys(r.checksums))))
	}
	return nil
}
