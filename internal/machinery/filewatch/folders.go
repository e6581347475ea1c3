package filewatch

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// everywhere is what all watchers of this process share. A user has 128 inotify instances for all processes by default.
var everywhere = &folders{open: fsnotify.NewWatcher}

// folders notifies listeners of what happens in folders, with one inotify instance for all of them, and none while there are none.
type folders struct {
	open func() (*fsnotify.Watcher, error)

	// changing is held while watches are added and removed. It is not the lock of the listeners: events have to be delivered meanwhile, or
	// the instance would block.
	changing sync.Mutex
	notify   *fsnotify.Watcher

	mu        sync.Mutex
	listeners map[string]map[*listener]bool // by folder
}

// listener is notified of what happens in its folders, or has happened since it was notified last.
type listener struct{ notified chan struct{} }

func newListener() *listener { return &listener{notified: make(chan struct{}, 1)} }

func (l *listener) wake() {
	select {
	case l.notified <- struct{}{}:
	default:
	}
}

// listen has the listener notified of what happens in these folders, and in no others, from now on. It fails if one cannot be
// watched; the others are.
func (f *folders) listen(l *listener, paths []string) error {
	f.changing.Lock()
	defer f.changing.Unlock()
	if f.notify == nil {
		notify, err := f.open()
		if err != nil {
			return err
		}
		f.notify = notify
		go f.notifyListeners(notify)
	}
	desired := map[string]bool{}
	var errs []error
	for _, path := range paths {
		desired[path] = true
		if err := f.add(l, path); err != nil {
			errs = append(errs, err)
		}
	}
	f.drop(l, desired)
	return errors.Join(errs...)
}

func (f *folders) add(l *listener, path string) error {
	f.mu.Lock()
	watched := len(f.listeners[path]) > 0
	f.mu.Unlock()
	if !watched {
		if err := f.notify.Add(path); err != nil {
			return fmt.Errorf("watch %s: %w", path, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listeners == nil {
		f.listeners = map[string]map[*listener]bool{}
	}
	if f.listeners[path] == nil {
		f.listeners[path] = map[*listener]bool{}
	}
	f.listeners[path][l] = true
	return nil
}

// drop ends the notifications of the listener about folders but those it wants, and the watch of those without a listener.
func (f *folders) drop(l *listener, desired map[string]bool) {
	f.mu.Lock()
	var unwatched []string
	for path, listeners := range f.listeners {
		if !listeners[l] || desired[path] {
			continue
		}
		if delete(listeners, l); len(listeners) == 0 {
			delete(f.listeners, path)
			unwatched = append(unwatched, path)
		}
	}
	f.mu.Unlock()
	for _, path := range unwatched {
		_ = f.notify.Remove(path) // which is gone if the folder is
	}
}

// leave ends the events of the listener, and the instance if it was the last one.
func (f *folders) leave(l *listener) {
	f.changing.Lock()
	defer f.changing.Unlock()
	if f.notify == nil {
		return
	}
	f.drop(l, nil)
	f.mu.Lock()
	left := len(f.listeners)
	f.mu.Unlock()
	if left == 0 {
		_ = f.notify.Close()
		f.notify = nil
	}
}

// notifyListeners notifies listeners until the instance is closed.
func (f *folders) notifyListeners(notify *fsnotify.Watcher) {
	for {
		select {
		case event, open := <-notify.Events:
			if !open {
				return
			}
			f.happened(event)
		case _, open := <-notify.Errors:
			if !open {
				return
			}
			f.wakeAll() // events may have been lost
		}
	}
}

// happened notifies those who listen to the folder of what something happened to, and to itself. The watch of a folder ends when it
// is removed or gets another name: its listeners have to add it again.
func (f *folders) happened(event fsnotify.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range []string{filepath.Dir(event.Name), event.Name} {
		for l := range f.listeners[path] {
			l.wake()
		}
	}
	if event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename) {
		delete(f.listeners, event.Name)
	}
}

func (f *folders) wakeAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, listeners := range f.listeners {
		for l := range listeners {
			l.wake()
		}
	}
}
