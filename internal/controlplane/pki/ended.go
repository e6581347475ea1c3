package pki

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// endedDir is the folder below that of a store with its files as they were before CAs that had ended were replaced: if they seemed to have
// ended because the clock was far ahead, these are the keys to go back to.
const endedDir = "ended"

func (o *Options) ended() folder { return folder(filepath.Join(o.Dir, endedDir)) }

// authorities are those that are not supplied by the user.
func (o *Options) authorities() []Authority {
	if o.CAFile == "" {
		return authorities
	}
	return slices.DeleteFunc(slices.Clone(authorities), func(a Authority) bool { return a == RootCA })
}

// keepEnded copies the files of a folder before CAs that have ended are replaced. After a pass that has replaced only some of them, it
// leaves the copy as it is.
func (r *renewal) keepEnded() error {
	kept := r.options.ended()
	all, err := r.keptBy(kept)
	if err != nil || all {
		return err
	}
	files, err := r.folder.shared()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(string(kept)); err != nil {
		return err
	}
	if err := kept.create(); err != nil {
		return err
	}
	_, err = kept.takeOver(files)
	return err
}

// keptBy reports whether a folder has all CAs that have ended.
func (r *renewal) keptBy(kept folder) (bool, error) {
	for _, a := range r.options.authorities() {
		pair := r.folder.pair(string(a))
		current, err := pair.load()
		if err != nil {
			return false, err
		}
		if current == nil || !current.endedAt(r.now) {
			continue
		}
		cert, err := os.ReadFile(pair.certFile())
		if err != nil || !has(kept.pair(string(a)).certFile(), cert) {
			return false, err
		}
	}
	return true, nil
}

// checkEnded fails if a CA begins later, and the one that it has replaced is valid now. Nothing goes back by itself: it may be now that the
// clock is wrong.
func (s *Store) checkEnded() error {
	now, kept := s.clock.Now(), s.options.ended()
	for _, a := range s.options.authorities() {
		pair := s.folder.pair(string(a))
		current, err := pair.load()
		if err != nil {
			return err
		}
		if current == nil || !current.cert.NotBefore.After(now.Add(day)) {
			continue
		}
		replaced, err := kept.pair(string(a)).load()
		if err != nil {
			return err
		}
		if replaced != nil && replaced.cert.NotBefore.Before(now) && !replaced.endedAt(now) {
			return fmt.Errorf("%s begins at %s, and the certificate that it has replaced is valid now: the clock was far ahead when it was made, "+
				"or is wrong now; set the clock, or, to go back to the keys from before, copy all that is in %s to %s",
				pair.certFile(), current.cert.NotBefore.Format(time.RFC3339), kept, s.folder)
		}
	}
	return nil
}
