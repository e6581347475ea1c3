package pki

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	certutil "k8s.io/client-go/util/cert"

	"github.com/capstan-io/capstan/internal/atomicfile"
)

// Storage is where several stores keep what they share. All of it is replaced at a time.
type Storage interface {
	// Load returns what is stored, nil if nothing is, and its version.
	Load(ctx context.Context) ([]byte, Version, error)
	// Replace stores something if what is stored still has the version, and returns that of the new. It reports false if another
	// store was faster.
	Replace(ctx context.Context, content []byte, version Version) (next Version, replaced bool, err error)
	// Await returns when something else than had the version may be stored, or has to be stored in another way, or the context ends.
	Await(ctx context.Context, version Version)
}

// Version distinguishes what is stored from what was before, to a Storage.
type Version struct {
	// Content is when it was stored; 0 if nothing is.
	Content int64
	// Seen is until when nothing else was.
	Seen int64
}

// sharedFiles are the files that stores share, by their paths below the folder, in PEM.
type sharedFiles map[string]string

// sharedPairs are the names of all pairs that stores may share.
func sharedPairs() (names []string) {
	for _, a := range authorities {
		names = append(names, string(a), string(a)+stagedSuffix)
	}
	for _, l := range commonLeaves {
		names = append(names, string(l.name))
	}
	return names
}

// share brings what the stores share up to date and takes it over, with the outcome in r. The stores that do so at the same time renew the
// same, each in a folder that nobody reads; the first to store it is the one whose outcome counts.
func (s *Store) share(ctx context.Context, r *renewal) error {
	for {
		stored, version, err := s.options.Storage.Load(ctx)
		if err != nil {
			return err
		}
		before, err := s.sharedBefore(stored)
		if err != nil {
			return err
		}
		after, pass, err := s.renewApart(ctx, before)
		if err != nil {
			return err
		}
		if stored == nil || !maps.Equal(before, after) {
			var replaced bool
			if version, replaced, err = s.replace(ctx, after, version); err != nil {
				return err
			}
			if !replaced {
				continue
			}
		}
		s.version = version
		r.include(pass)
		if err := s.folder.keepReplaced(after, r.logger); err != nil {
			return err
		}
		if r.changed, err = s.folder.takeOver(after); err != nil {
			return err
		}
		return s.checkEnded()
	}
}

func (s *Store) replace(ctx context.Context, files sharedFiles, version Version) (Version, bool, error) {
	content, err := json.Marshal(files)
	if err != nil {
		return Version{}, false, err
	}
	return s.options.Storage.Replace(ctx, content, version)
}

// sharedBefore is what the stores share so far: the first to come shares what it has.
func (s *Store) sharedBefore(stored []byte) (sharedFiles, error) {
	if stored == nil {
		return s.folder.shared()
	}
	files := sharedFiles{}
	if err := json.Unmarshal(stored, &files); err != nil {
		return nil, fmt.Errorf("read the keys of this hub from its storage: %w; restore the storage from a backup", err)
	}
	if s.foreign(files) {
		return nil, fmt.Errorf("the keys in %s are not those that the hub has in its storage; move that folder away to go on with the keys in "+
			"the storage, or use another etcd.prefix if this is another hub", s.options.Dir)
	}
	return files, nil
}

// foreign reports whether clients to whom the folder's own keys gave certificates would not be known to those who share others.
func (s *Store) foreign(shared sharedFiles) bool {
	own, err := certutil.CertsFromFile(s.folder.pair(string(ClientCA)).certFile())
	if err != nil || !s.clock.Now().Before(own[0].NotAfter) {
		return false
	}
	trusted, err := certutil.ParseCertsPEM([]byte(shared[bundleFile(ClientCA)]))
	return err != nil || !slices.ContainsFunc(trusted, own[0].Equal)
}

// renewApart renews files in a folder of their own.
func (s *Store) renewApart(ctx context.Context, files sharedFiles) (sharedFiles, *renewal, error) {
	dir, err := os.MkdirTemp(s.options.Dir, atomicfile.TemporaryPrefix+"shared-*")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	apart := folder(dir)
	if err := apart.create(); err != nil {
		return nil, nil, err
	}
	if _, err := apart.takeOver(files); err != nil {
		return nil, nil, err
	}
	pass := s.renewal(ctx, apart)
	if err := pass.common(); err != nil {
		return nil, nil, err
	}
	renewed, err := apart.shared()
	return renewed, pass, err
}

// othersRenew is closed when the Storage may have something else than at the last renewal.
func (s *Store) othersRenew(ctx context.Context) <-chan struct{} {
	if s.options.Storage == nil {
		return nil
	}
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		s.options.Storage.Await(ctx, version)
	}()
	return changed
}

// shared reads the files that stores share.
func (f folder) shared() (sharedFiles, error) {
	files := sharedFiles{}
	for _, name := range sharedPairs() {
		pair, err := f.pair(name).load()
		if err != nil {
			return nil, err
		}
		if pair == nil {
			continue
		}
		for _, file := range []string{name + certExtension, name + keyExtension} {
			if err := f.read(file, files); err != nil {
				return nil, err
			}
		}
	}
	for _, a := range authorities {
		if err := f.read(bundleFile(a), files); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return files, nil
}

func (f folder) read(name string, into sharedFiles) error {
	content, err := os.ReadFile(filepath.Join(string(f), name))
	if err != nil {
		return err
	}
	into[name] = string(content)
	return nil
}

// takeOver makes the files of a folder be those, and reports whether one changed. What is to be trusted comes before what is signed with
// it.
func (f folder) takeOver(files sharedFiles) (changed bool, err error) {
	for _, a := range authorities {
		bundle := []byte(files[bundleFile(a)])
		if len(bundle) == 0 || has(f.bundle(a), bundle) {
			continue
		}
		changed = true
		if err := atomicfile.Write(f.bundle(a), bundle, 0o644); err != nil {
			return changed, err
		}
	}
	for _, name := range sharedPairs() {
		pair, certs, key := f.pair(name), []byte(files[name+certExtension]), []byte(files[name+keyExtension])
		switch {
		case len(certs) == 0 && strings.HasSuffix(name, stagedSuffix):
			err = pair.remove() // it signs now
		case len(certs) == 0 || has(pair.certFile(), certs) && has(pair.keyFile(), key):
		default:
			changed = true
			err = pair.write(certs, key)
		}
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func has(file string, content []byte) bool {
	had, err := os.ReadFile(file)
	return err == nil && bytes.Equal(had, content)
}
