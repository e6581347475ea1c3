package backup

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"
)

// Whatever a file holds, reading it as a backup does not crash, and hands out no file that would leave the folder.
func FuzzRead(f *testing.F) {
	var file bytes.Buffer
	source := &Source{Hub: "https://hub.example.com", Version: "v1.2.3", Prefix: "/registry", Clock: fixedClock, KeysDir: f.TempDir(),
		Snapshot: func() Snapshot { return database("objects") }}
	if err := source.Write(&file); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:file.Len()/2])
	f.Fuzz(func(t *testing.T, content []byte) {
		description, err := Read(t.Context(), bytes.NewReader(content), nil, func(name string, content io.Reader) error {
			if !filepath.IsLocal(name) {
				t.Errorf("it hands out %q", name)
			}
			_, err := io.Copy(io.Discard, content)
			return err
		})
		if err == nil && description == nil {
			t.Error("a backup without a description is accepted")
		}
	})
}
