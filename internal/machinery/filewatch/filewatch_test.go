package filewatch

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

const absent = "absent"

func content(t *testing.T, file string) string {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return absent
	}
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func write(t *testing.T, file, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte(content), 0o600))
}

// link replaces a link in one step.
func link(t *testing.T, target, path string) {
	t.Helper()
	must(t, os.Symlink(target, path+".next"))
	must(t, os.Rename(path+".next", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// RG-12: every way in which a file may be replaced is noticed.
func TestRun(t *testing.T) {
	t.Parallel()
	volume := filepath.Join(t.TempDir(), "volume")
	file := filepath.Join(volume, "kubeconfig")
	seen := make(chan string, 100)
	done, listed := make(chan struct{}), make(chan struct{}, 1000)
	files := func() []string {
		listed <- struct{}{}
		return []string{file}
	}
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		New(files).Run(t.Context(), func() { seen <- content(t, file) })
	}()
	// It has read once when it lists a second time.
	<-listed
	<-listed
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"made, with its folder", func() { write(t, file, "one") }, "one"},
		{"written in place", func() { write(t, file, "two") }, "two"},
		{"replaced", func() {
			write(t, file+".next", "three")
			must(t, os.Rename(file+".next", file))
		}, "three"},
		{"removed", func() { must(t, os.Remove(file)) }, absent},
		{"a link, as in a volume", func() {
			write(t, filepath.Join(volume, "..1", "kubeconfig"), "four")
			link(t, "..1", filepath.Join(volume, "..data"))
			link(t, "..data/kubeconfig", file)
		}, "four"},
		{"its folder swapped, as in a volume", func() {
			write(t, filepath.Join(volume, "..2", "kubeconfig"), "five")
			link(t, "..2", filepath.Join(volume, "..data"))
		}, "five"},
	} {
		step.do()
		deadline := time.After(time.Minute)
		for now := ""; now != step.want; {
			select {
			case now = <-seen:
			case <-deadline:
				t.Fatalf("%s: not noticed", step.name)
			}
		}
	}
}

// RG-12: where the machine has no watches left, changes are noticed all the same, and watches are used once there are some.
func TestRunWithoutWatches(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, "one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The machine may have none left to give.
	spare, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		t.Skipf("this machine has no inotify instance left: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	attempts, scarce := 0, true
	w := New(func() []string { return []string{file} })
	w.unwatchedInterval = time.Millisecond
	shared := &folders{}
	w.folders = shared
	shared.open = func() (*fsnotify.Watcher, error) {
		attempts++
		if attempts == 2 {
			write(t, file, "two")
		}
		if scarce {
			return nil, syscall.EMFILE
		}
		return spare, nil
	}
	var seen []string
	w.Run(ctx, func() {
		seen = append(seen, content(t, file))
		if scarce {
			scarce = false
			write(t, file, "three")
			return
		}
		if shared.notify == nil {
			t.Error("nothing is watched, though it could be")
		}
		cancel()
	})
	if !slices.Equal(seen, []string{"two", "three"}) {
		t.Errorf("seen: %q, after %d attempts to watch", seen, attempts)
	}
}

// RG-12: what changes after the watcher was made, and before it runs, is not lost.
func TestChangeBeforeRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, "one")
	w := New(func() []string { return []string{file} })
	write(t, file, "two")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	noticed := false
	w.Run(ctx, func() {
		noticed = true
		cancel()
	})
	if !noticed {
		t.Error("not noticed")
	}
}

// Watchers share one inotify instance, which ends with the last of them; each is notified of its own folders, and of a folder that
// comes again.
func TestShared(t *testing.T) {
	t.Parallel()
	spare, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		t.Skipf("this machine has no inotify instance left: %v", err)
	}
	must(t, err)
	shared := &folders{}
	opened := 0
	shared.open = func() (*fsnotify.Watcher, error) {
		opened++
		return spare, nil
	}
	type notification struct{ name, content string }
	seen := make(chan notification, 100)
	dir := t.TempDir()
	must(t, os.Symlink(dir, filepath.Join(dir, "alias")))
	files := map[string]string{
		"one": filepath.Join(dir, "a", "file"), "two": filepath.Join(dir, "b", "file"), "alias of two": filepath.Join(dir, "alias", "b", "file"),
	}
	for name, file := range files {
		write(t, file, "first")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		w := New(func() []string { return []string{file} })
		w.folders, w.unwatchedInterval = shared, time.Millisecond
		go func() {
			defer close(done)
			w.Run(ctx, func() { seen <- notification{name, content(t, file)} })
		}()
		defer func() {
			stop()
			<-done
			if delete(files, name); len(files) == 0 && shared.notify != nil {
				t.Error("the instance exists when there is no watcher any more")
			}
		}()
	}
	await := func(want ...notification) {
		t.Helper()
		deadline := time.After(time.Minute)
		for len(want) > 0 {
			select {
			case got := <-seen:
				want = slices.DeleteFunc(want, func(w notification) bool { return w == got })
			case <-deadline:
				t.Fatalf("not told: %v", want)
			}
		}
	}
	write(t, files["one"], "second")
	await(notification{"one", "second"})
	write(t, files["two"], "third")
	await(notification{"two", "third"}, notification{"alias of two", "third"})
	must(t, os.RemoveAll(filepath.Dir(files["two"])))
	await(notification{"two", absent}, notification{"alias of two", absent})
	write(t, files["two"], "fourth")
	await(notification{"two", "fourth"}, notification{"alias of two", "fourth"})
	if opened != 1 {
		t.Errorf("%d instances were opened", opened)
	}
}

// A folder that is reached through a link, and made while a watcher looks for it, is watched for all who have it by another name, also
// when the watcher has looked again.
func TestFolderMadeBehindLink(t *testing.T) {
	t.Parallel()
	spare, err := fsnotify.NewWatcher()
	if errors.Is(err, syscall.EMFILE) {
		t.Skipf("this machine has no inotify instance left: %v", err)
	}
	must(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.Symlink(dir, filepath.Join(dir, "alias")))
	file := filepath.Join(dir, "folder", "file")
	shared := &folders{open: func() (*fsnotify.Watcher, error) {
		return spare, os.Mkdir(filepath.Dir(file), 0o700)
	}}
	var watchers []*Watcher
	for _, path := range []string{filepath.Join(dir, "alias", "folder", "file"), file} {
		w := New(func() []string { return []string{path} })
		w.folders = shared
		defer shared.leave(w.events)
		watchers = append(watchers, w)
		w.follow(t.Context())
	}
	for _, w := range watchers {
		if !w.follow(t.Context()) {
			t.Fatal("the folder is there, but cannot be watched")
		}
	}
	write(t, file, "content")
	for _, w := range watchers {
		select {
		case <-w.events.notified:
		case <-time.After(time.Minute):
			t.Errorf("%s: not told", w.files()[0])
		}
	}
}
