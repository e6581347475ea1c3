package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

// endedDir is the folder below that of a store with each CA as it was before another one took its place, and its bundle: if the clock was
// far ahead then, these are the keys to go back to.
const endedDir = "ended"

func (f folder) ended() folder { return folder(filepath.Join(string(f), endedDir)) }

// keep copies a CA, if there is one, before another takes its place.
func (f folder) keep(a Authority) error {
	pair := f.pair(string(a))
	if current, err := pair.load(); err != nil || current == nil {
		return err
	}
	files := sharedFiles{}
	for _, file := range []string{string(a) + certExtension, string(a) + keyExtension, bundleFile(a)} {
		if err := f.read(file, files); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := f.ended().create(); err != nil {
		return err
	}
	_, err := f.ended().takeOver(files)
	return err
}

// keepReplaced keeps the CAs in whose place files have others. A damaged one is lost: what is shared repairs it.
func (f folder) keepReplaced(files sharedFiles, logger logr.Logger) error {
	for _, a := range authorities {
		cert, pair := files[string(a)+certExtension], f.pair(string(a))
		if cert == "" || has(pair.certFile(), []byte(cert)) {
			continue
		}
		if _, err := pair.load(); err != nil {
			logger.Info("A certificate authority that cannot be read is replaced by the one in the storage", "authority", a, "cause", err.Error())
			continue
		}
		if err := f.keep(a); err != nil {
			return err
		}
	}
	return nil
}

// authorities are those that are not supplied by the user.
func (o *Options) authorities() []Authority {
	if o.CAFile == "" {
		return authorities
	}
	return slices.DeleteFunc(slices.Clone(authorities), func(a Authority) bool { return a == RootCA })
}

// checkEnded fails if CAs begin later, and those that they have replaced are valid now. Nothing goes back by itself: it may be now that the
// clock is wrong.
func (s *Store) checkEnded() error {
	now := s.clock.Now()
	var early []string
	for _, a := range s.options.authorities() {
		is, err := s.folder.replacedEarly(a, now)
		if err != nil {
			return err
		}
		if is {
			early = append(early, string(a))
		}
	}
	if len(early) == 0 {
		return nil
	}
	goBack := ""
	if s.options.Storage != nil {
		goBack = "stop all servers, remove their keys from the storage, and "
	}
	return fmt.Errorf("in %s, certificates begin later than now that have replaced valid ones (%s): the clock was far ahead when that was "+
		"done, or is wrong now; set the clock, or, to go back to the keys from before, %scopy all of these, and their bundles, from %s to %[1]s",
		s.folder, strings.Join(early, ", "), goBack, s.folder.ended())
}

// replacedEarly reports whether a CA begins later, and the one that it has replaced is valid.
func (f folder) replacedEarly(a Authority, now time.Time) (bool, error) {
	current, err := f.pair(string(a)).load()
	if err != nil || current == nil || !current.cert.NotBefore.After(now.Add(day)) {
		return false, err
	}
	replaced, err := f.ended().pair(string(a)).load()
	return replaced != nil && replaced.cert.NotBefore.Before(now) && !replaced.endedAt(now), err
}
