package output

import (
	"bufio"
	"io"
	"strings"
	"unicode/utf8"
)

// Grid is a table: a header and rows with one cell for each of its columns.
type Grid struct {
	Header []string
	Rows   [][]Cell
}

// gap is the space between columns.
const gap = 3

// WriteGrid writes the table with columns as wide as they have to be. An empty cell shows as a dash.
func (s Style) WriteGrid(w io.Writer, grid Grid) error {
	out := bufio.NewWriter(w)
	widths := columnWidths(grid)
	header := make([]Cell, len(grid.Header))
	for i, title := range grid.Header {
		header[i] = titleCell(title)
	}
	s.writeRow(out, widths, header)
	for _, row := range grid.Rows {
		s.writeRow(out, widths, row)
	}
	return out.Flush()
}

func columnWidths(grid Grid) []int {
	widths := make([]int, len(grid.Header))
	for i, title := range grid.Header {
		widths[i] = width(titleCell(title))
	}
	for _, row := range grid.Rows {
		for i, cell := range row {
			widths[i] = max(widths[i], width(cell))
		}
	}
	return widths
}

// titleCell is the title of a column as the header has it.
func titleCell(title string) Cell { return Plain(strings.ToUpper(title)) }

// width is how much room a cell takes on the screen, without colours.
func width(cell Cell) int { return utf8.RuneCountInString(Style{}.cell(cell)) }

// writeRow pads by what is seen: escape sequences take no room on the screen. bufio keeps the first error for Flush.
func (s Style) writeRow(out *bufio.Writer, widths []int, row []Cell) {
	for i, cell := range row {
		if cell.Text == "" {
			cell.Text = noValue
		}
		out.WriteString(s.cell(cell))
		if i < len(row)-1 {
			out.WriteString(strings.Repeat(" ", widths[i]-width(cell)+gap))
		}
	}
	out.WriteByte('\n')
}
