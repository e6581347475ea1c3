// Package terminal is what programs show a person who watches: colours, and what is being waited for.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Is tells whether a person watches this writer.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// IsInput tells whether a person types what is read there.
func IsInput(r io.Reader) bool {
	file, ok := r.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Colours tells whether a text may have colours.
type Colours bool

// ColoursOf allows them on a terminal, unless the environment variable NO_COLOR holds anything (see no-color.org) or TERM is dumb.
func ColoursOf(w io.Writer) Colours {
	return Colours(Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

// The colours of Paint.
const (
	Red   = "\x1b[31m"
	Green = "\x1b[32m"
	Dim   = "\x1b[2m"
)

const reset = "\x1b[0m"

// Paint puts a text in a colour if it may have one.
func (c Colours) Paint(colour, text string) string {
	if !c || text == "" {
		return text
	}
	return colour + text + reset
}
