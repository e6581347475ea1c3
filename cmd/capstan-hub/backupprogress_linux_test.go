package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/capstan-io/capstan/internal/controlplane/backup"
)

// openTerminal opens a terminal, and what a person at it sees. Closing the terminal ends that.
func openTerminal(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine makes no terminals: %v", err)
	}
	t.Cleanup(func() { _ = person.Close() })
	number, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("this machine makes no terminals: %v", err)
	}
	return person, terminal
}

// A person at a terminal sees what is being done, and that it is done; a log has nothing of it.
func TestShowProgress(t *testing.T) {
	t.Setenv("TERM", "xterm")
	var log bytes.Buffer
	person, terminal := openTerminal(t)
	for _, w := range []io.Writer{&log, terminal} {
		shown := showProgress(w, "hub.backup", &backup.Progress{})
		shown.Done("hub.backup", "written")
		shown.Close()
	}
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	seen, _ := io.ReadAll(person) // whose end is an error
	if text := string(seen); !strings.Contains(text, "hub.backup: waiting for it") || !strings.Contains(text, "hub.backup: written") {
		t.Errorf("the person sees %q", text)
	}
	if log.Len() > 0 {
		t.Errorf("the log has %q", log.String())
	}
}
