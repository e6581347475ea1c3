package main

import (
	"cmp"
	"io"

	"k8s.io/utils/clock"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
	"github.com/capstan-io/capstan/internal/terminal"
)

// showProgress shows a person at a terminal how far something is with a backup, and at the end how long it took. Elsewhere it shows
// nothing, so that logs of services have results alone.
func showProgress(w io.Writer, subject string, of *backup.Progress) *terminal.Progress {
	if !terminal.Is(w) {
		w = io.Discard
	}
	shown := terminal.NewProgress(w, clock.RealClock{})
	shown.Follow(subject, func() string { return cmp.Or(of.String(), "waiting for it") })
	return shown
}
