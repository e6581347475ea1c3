package output

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Style says how text for people looks on one writer.
type Style struct {
	// Colour allows escape sequences.
	Colour bool
}

// StyleOf returns the style for a writer: coloured on a terminal, unless the environment variable NO_COLOR holds
// anything (see no-color.org) or TERM is dumb.
func StyleOf(w io.Writer) Style {
	return Style{Colour: Terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal tells whether a person watches this writer.
func Terminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Cell is a piece of text that may be bad news.
type Cell struct {
	Text string
	// Bad cells are red where there is colour.
	Bad bool
}

// noValue stands where there is nothing to show.
const noValue = "-"

// Plain is a cell without any news.
func Plain(text string) Cell { return Cell{Text: text} }

const (
	red   = "\x1b[31m"
	green = "\x1b[32m"
	dim   = "\x1b[2m"
	reset = "\x1b[0m"
)

func (s Style) paint(colour, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return colour + text + reset
}

// cell is a cell as it is written. Agents and users write most texts, and a terminal is not to act on what is in them.
func (s Style) cell(c Cell) string {
	text := Printable(c.Text)
	if c.Bad {
		return s.paint(red, text)
	}
	return text
}

// Error colours a word that announces an error.
func (s Style) Error(text string) string { return s.paint(red, text) }
