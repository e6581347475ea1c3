package output

import (
	"io"

	"github.com/capstan-io/capstan/internal/terminal"
)

// Style says how text for people is written to one writer.
type Style struct {
	// Colour allows escape sequences.
	Colour bool
}

// StyleOf returns the style for a writer: coloured where a person may see colours.
func StyleOf(w io.Writer) Style { return Style{Colour: bool(terminal.ColoursOf(w))} }

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

func (s Style) paint(colour, text string) string {
	return terminal.Colours(s.Colour).Paint(colour, text)
}

// cell is a cell as it is written. Agents and users write most texts, and a terminal is not to act on what is in them.
func (s Style) cell(c Cell) string {
	text := Printable(c.Text)
	if c.Bad {
		return s.paint(terminal.Red, text)
	}
	return text
}

// Error colours a word that announces an error.
func (s Style) Error(text string) string { return s.paint(terminal.Red, text) }
