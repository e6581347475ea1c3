package backup

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// Whoever reads a backup is told how many bytes of its database have been read.
func TestProgress(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	s.Snapshot = func() Snapshot { return database(strings.Repeat("objects...", 300_000)) }
	progress := &Progress{}
	halfway := ""
	_, err := Read(t.Context(), bytes.NewReader(written(t, s)), progress, func(name string, content io.Reader) error {
		if name != storageFile {
			return nil
		}
		_, err := io.CopyN(io.Discard, content, 1_500_000)
		halfway = progress.String()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "reading, 1.5 of 3.0 MB"; halfway != want {
		t.Errorf("halfway, it says %q, want %q", halfway, want)
	}
	if got, want := progress.String(), "reading, 3.0 of 3.0 MB"; got != want {
		t.Errorf("at the end, it says %q, want %q", got, want)
	}
	progress.counting("counting objects in revisions").Add(5)
	if got, want := progress.String(), "counting objects in revisions, 5 so far"; got != want {
		t.Errorf("after five, it says %q, want %q", got, want)
	}
}
