package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/controlplane/etcd"
)

var created = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

var fixedClock = testingclock.NewFakePassiveClock(created)

// database is a snapshot with this content.
type database string

func (d database) Size() int64  { return int64(len(d)) }
func (d database) Close() error { return nil }
func (d database) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, string(d))
	return int64(n), err
}

// keysFolderWith is a folder with files of a hub's keys.
func keysFolderWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func newSource(t *testing.T) *Source {
	t.Helper()
	return &Source{
		Hub: "https://hub.example.com:9443", Version: "v1.2.3", Prefix: "/registry", Clock: fixedClock,
		KeysDir:  keysFolderWith(t, map[string]string{"root-ca.key": "a key", "ca-bundle/root-ca-bundle.crt": "a CA", "empty.crt": ""}),
		Snapshot: func() Snapshot { return database(strings.Repeat("objects", 1000)) },
	}
}

func written(t *testing.T, s *Source) []byte {
	t.Helper()
	var file bytes.Buffer
	if err := s.Write(&file); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestReadWhatWasWritten(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	description, err := Read(t.Context(), bytes.NewReader(written(t, newSource(t))), nil, func(name string, content io.Reader) error {
		all, err := io.ReadAll(content)
		files[name] = string(all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Description{FormatVersion: 1, Created: created, Hub: "https://hub.example.com:9443", Version: "v1.2.3", Prefix: "/registry",
		StorageBytes: 7000}
	if !reflect.DeepEqual(*description, want) {
		t.Errorf("description: %+v, want %+v", *description, want)
	}
	if len(files) != 4 || files["cert/root-ca.key"] != "a key" || files["cert/ca-bundle/root-ca-bundle.crt"] != "a CA" ||
		files["etcd.db"] != strings.Repeat("objects", 1000) {
		t.Errorf("files: %q", files)
	}
}

// A backup that lacks its end is none, wherever it was cut off.
func TestCutOff(t *testing.T) {
	t.Parallel()
	whole := written(t, newSource(t))
	for length := range whole {
		if _, err := Read(t.Context(), bytes.NewReader(whole[:length]), nil, nil); err == nil {
			t.Fatalf("the first %d of %d bytes are a backup", length, len(whole))
		}
	}
}

// rewritten is a backup whose files were changed after it was written.
func rewritten(t *testing.T, whole []byte, change func(header *tar.Header, content []byte) []byte) []byte {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	target := gzip.NewWriter(&file)
	from, to := tar.NewReader(compressed), tar.NewWriter(target)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(from)
		if err != nil {
			t.Fatal(err)
		}
		content = change(header, content)
		header.Size = int64(len(content))
		if err := to.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := to.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(to.Close(), target.Close()); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	whole := written(t, newSource(t))
	for want, change := range map[string]func(header *tar.Header, content []byte) []byte{
		"etcd.db is not what was written": func(header *tar.Header, content []byte) []byte {
			if header.Name == "etcd.db" {
				content[10]++
			}
			return content
		},
		`has a file "cert/../../outside"`: func(header *tar.Header, content []byte) []byte {
			if header.Name == "cert/root-ca.key" {
				header.Name = "cert/../../outside"
			}
			return content
		},
		"SHA256SUMS has no checksum of cert/empty.crt": func(header *tar.Header, content []byte) []byte {
			if header.Name == "SHA256SUMS" {
				lines := strings.SplitAfter(string(content), "\n")
				return []byte(strings.Join(append([]string{lines[0], lines[1]}, lines[3:]...), ""))
			}
			return content
		},
		"format version 2, and this program reads 1; use a program of version v1.2.3": func(header *tar.Header, content []byte) []byte {
			if header.Name == "backup.json" {
				return bytes.Replace(content, []byte(`"formatVersion": 1`), []byte(`"formatVersion": 2`), 1)
			}
			return content
		},
	} {
		_, err := Read(t.Context(), bytes.NewReader(rewritten(t, whole, change)), nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err := Read(t.Context(), strings.NewReader("nothing of the kind"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "no backup of a hub") {
		t.Errorf("error %v of another file", err)
	}
}

// Keys that are renewed while the database is taken are taken again, with the database.
func TestKeysAreOfTheDatabase(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	taken := 0
	s.Snapshot = func() Snapshot {
		taken++
		if taken == 1 {
			if err := os.WriteFile(filepath.Join(s.KeysDir, "root-ca.key"), []byte("renewed"), 0o600); err != nil {
				t.Error(err)
			}
		}
		return database("objects")
	}
	keys := ""
	_, err := Read(t.Context(), bytes.NewReader(written(t, s)), nil, func(name string, content io.Reader) error {
		all, err := io.ReadAll(content)
		if name == "cert/root-ca.key" {
			keys = string(all)
		}
		return err
	})
	if err != nil || keys != "renewed" || taken != 2 {
		t.Errorf("the key is %q after %d snapshots, %v", keys, taken, err)
	}
}

func TestHandlerRefuses(t *testing.T) {
	t.Parallel()
	busy := newSource(t)
	reading, wait := make(chan struct{}), make(chan struct{})
	busy.Snapshot = func() Snapshot {
		close(reading)
		<-wait
		return database("objects")
	}
	handler := Handler(t.Context(), busy)
	first := make(chan int)
	go func() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(context.Background(), http.MethodGet, Path, nil))
		first <- answer.Code
	}()
	<-reading
	for _, test := range []struct {
		handler http.Handler
		method  string
		code    int
		says    string
	}{
		{handler, http.MethodGet, http.StatusConflict, "another backup"},
		{handler, http.MethodPost, http.StatusMethodNotAllowed, "GET"},
		{Handler(t.Context(), nil), http.MethodGet, http.StatusNotImplemented, "external etcd"},
	} {
		answer := httptest.NewRecorder()
		test.handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), test.method, Path, nil))
		if answer.Code != test.code || !strings.Contains(answer.Body.String(), test.says) {
			t.Errorf("%d %s, want %d with %q", answer.Code, answer.Body, test.code, test.says)
		}
	}
	close(wait)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first backup: %d", code)
	}
}

// A client that stops reading holds the database, and with it the end of the hub, until the hub stops and not for ever.
func TestDownloadEnds(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSource(t)
			endless := &endlessDatabase{begun: make(chan struct{}), closed: make(chan struct{})}
			s.Snapshot = func() Snapshot { return endless }
			hub, stop := context.WithCancel(t.Context())
			defer stop()
			server := httptest.NewUnstartedServer(Handler(hub, s))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			response, err := server.Client().Get(server.URL + Path) //nolint:noctx // it ends with the server
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			<-endless.begun
			stop()
			<-endless.closed
			if _, err := io.Copy(io.Discard, response.Body); err == nil {
				t.Error("the client does not see that the end is missing")
			}
		})
	}
}

// endlessDatabase is more than any client has room for.
type endlessDatabase struct{ begun, closed chan struct{} }

func (d *endlessDatabase) Size() int64 { return 1 << 40 }

func (d *endlessDatabase) WriteTo(w io.Writer) (int64, error) {
	close(d.begun)
	for written := int64(0); ; {
		n, err := io.CopyN(w, rand.Reader, 1<<20)
		if written += n; err != nil {
			return written, err
		}
	}
}

func (d *endlessDatabase) Close() error {
	close(d.closed)
	return nil
}

// Each write has a minute, and none starts when the hub stops.
func TestDownloadHasToGoOn(t *testing.T) {
	t.Parallel()
	var deadlines []time.Time
	var got strings.Builder
	d := download{Writer: &got, deadline: func(at time.Time) error {
		deadlines = append(deadlines, at)
		return http.ErrNotSupported
	}}
	before := time.Now()
	for range 2 {
		if _, err := d.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	d.stop()
	if _, err := d.Write([]byte("y")); !errors.Is(err, errStopping) || got.String() != "xx" {
		t.Errorf("%q was written, %v", got.String(), err)
	}
	if len(deadlines) != 3 || deadlines[1].Before(before.Add(stalled)) || !deadlines[2].Before(deadlines[1]) {
		t.Errorf("deadlines %v since %v", deadlines, before)
	}
}

// An etcd that is restored has what it had, and revisions that nobody has seen.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := newSource(t)
	server, err := etcd.Start(t.Context(), etcd.Options{Dir: t.TempDir(), NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const works = "/registry/work.example.com/works/"
	for _, key := range []string{"/registry/secrets/a/b", works + "c/d", works + "c/e", "/other"} {
		if _, err := server.Client().Put(t.Context(), key, "content"); err != nil {
			t.Fatal(err)
		}
	}
	last, err := server.Client().Delete(t.Context(), works+"c/e")
	if err != nil {
		t.Fatal(err)
	}
	s.Snapshot = func() Snapshot { return server.Snapshot() }
	whole := written(t, s)

	progress := &Progress{}
	_, contents, err := Check(t.Context(), bytes.NewReader(whole), "", progress)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := progress.String(), "counting objects in revisions, 5 so far"; got != want {
		t.Errorf("the progress is %q, want %q", got, want)
	}
	if contents.WorksHeld || contents.Revision != last.Header.Revision || len(contents.Objects) != 2 || contents.Objects["secrets"] != 1 ||
		contents.Objects["works.work.example.com"] != 1 {
		t.Errorf("contents %+v, want a Secret and a work of revision %d", contents, last.Header.Revision)
	}

	to := Target{DataDir: t.TempDir(), EtcdDir: t.TempDir(), Prefix: "/registry", Progress: progress}
	// The root of a disk, which cannot be replaced by another folder.
	if err := os.Mkdir(filepath.Join(to.EtcdDir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	disk, err := os.Stat(to.EtcdDir)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Restore(t.Context(), bytes.NewReader(whole[:len(whole)/2]), to); err == nil {
		t.Error("half a backup was restored")
	}
	began := time.Now()
	if _, _, err := Restore(t.Context(), bytes.NewReader(whole), to); err != nil {
		t.Fatal(err)
	}
	if got, want := progress.String(), "making a storage of it"; got != want {
		t.Errorf("the progress is %q, want %q", got, want)
	}
	if _, _, err := Restore(t.Context(), bytes.NewReader(whole), to); err == nil || !strings.Contains(err.Error(), "there is a hub already") {
		t.Errorf("restored again: %v", err)
	}
	key, err := os.ReadFile(filepath.Join(to.DataDir, "cert", "root-ca.key"))
	if err != nil || string(key) != "a key" {
		t.Errorf("the key is %q, %v", key, err)
	}
	entries, err := os.ReadDir(to.DataDir)
	if err != nil || len(entries) != 2 { // the lock is the other
		t.Errorf("the folder has %v, %v", entries, err)
	}
	if now, err := os.Stat(to.EtcdDir); err != nil || !os.SameFile(disk, now) {
		t.Errorf("the folder of the etcd is another: %v", err)
	}
	entries, err = os.ReadDir(to.EtcdDir)
	if err != nil || len(entries) != 2 { // lost+found is the other
		t.Errorf("the folder of the etcd has %v, %v", entries, err)
	}
	restored, err := etcd.Start(t.Context(), etcd.Options{Dir: to.EtcdDir, NoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	found, err := restored.Client().Get(t.Context(), "/registry/secrets/a/b")
	if err != nil || found.Count != 1 || string(found.Kvs[0].Value) != "content" || found.Header.Revision < began.UnixMicro() {
		t.Errorf("the restored etcd has %v, %v", found, err)
	}
}
