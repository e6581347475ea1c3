package output

import (
	"bufio"
	"io"
	"slices"

	"github.com/capstan-io/capstan/internal/machinery/text"
)

// Merged writes tables of several servers as one, block by block. Columns of the same name are one column; a server that has one more
// gives the table that column from there on, under a new header.
type Merged struct {
	out     io.Writer
	style   Style
	columns []string
	widths  []int
	headed  bool
}

// Block is some rows of one server.
type Block struct {
	Columns []string
	Rows    [][]string
}

// NewMerged returns a table without columns.
func NewMerged(out io.Writer) *Merged { return &Merged{out: out, style: StyleOf(out)} }

// Write adds blocks. Columns are as wide as anything that has been written in them, so that rows of later blocks may be wider.
func (m *Merged) Write(blocks []Block) error {
	before := len(m.columns)
	for i := range blocks {
		if len(blocks[i].Rows) > 0 {
			m.addColumns(blocks[i].Columns)
		}
	}
	var rows [][]Cell
	for i := range blocks {
		for _, row := range blocks[i].Rows {
			rows = append(rows, m.row(blocks[i].Columns, row))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	for _, row := range rows {
		for i, cell := range row {
			m.widths[i] = max(m.widths[i], width(cell))
		}
	}
	if !m.headed || len(m.columns) > before {
		rows = slices.Insert(rows, 0, m.header())
		m.headed = true
	}
	out := bufio.NewWriter(m.out)
	for _, row := range rows {
		m.style.writeRow(out, m.widths, row)
	}
	return out.Flush()
}

// maxColumns is how many columns a table has at most. What servers have in others is left out.
const maxColumns = 1000

// addColumns puts columns that are new behind those that they follow.
func (m *Merged) addColumns(columns []string) {
	at := 0
	for _, column := range columns {
		if existing := slices.Index(m.columns, column); existing >= 0 {
			at = existing + 1
			continue
		}
		if len(m.columns) == maxColumns {
			continue
		}
		m.columns = slices.Insert(m.columns, at, column)
		m.widths = slices.Insert(m.widths, at, width(titleCell(column)))
		at++
	}
}

func (m *Merged) header() []Cell {
	header := make([]Cell, len(m.columns))
	for i, column := range m.columns {
		header[i] = titleCell(column)
	}
	return header
}

// row is the cells of a row by the columns of the table. A column that the server does not have is empty.
func (m *Merged) row(columns, cells []string) []Cell {
	row := make([]Cell, len(m.columns))
	for i, column := range m.columns {
		row[i] = Plain(noValue)
		if at := slices.Index(columns, column); at >= 0 && at < len(cells) && cells[at] != "" {
			row[i] = Plain(text.OneLine(cells[at]))
		}
	}
	return row
}
