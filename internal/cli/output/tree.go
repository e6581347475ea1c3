package output

import (
	"bufio"
	"io"

	"github.com/capstan-io/capstan/internal/terminal"
)

// Node is one line of a tree: a key, perhaps a value, and what belongs to it.
type Node struct {
	Key      string
	Value    Cell
	Children []Node
}

// Leaf is a node with a value; an empty one shows as a dash.
func Leaf(key string, value Cell) Node {
	if value.Text == "" {
		value.Text = noValue
	}
	return Node{Key: key, Value: value}
}

// WriteTree writes the node and everything below it.
func (s Style) WriteTree(w io.Writer, root Node) error {
	out := bufio.NewWriter(w)
	s.writeNode(out, root)
	s.writeChildren(out, "", root.Children)
	return out.Flush()
}

func (s Style) writeNode(out *bufio.Writer, node Node) {
	out.WriteString(Printable(node.Key))
	if node.Value.Text != "" {
		out.WriteString(": ")
		out.WriteString(s.cell(node.Value))
	}
	out.WriteByte('\n')
}

func (s Style) writeChildren(out *bufio.Writer, indent string, children []Node) {
	for i, child := range children {
		branch, below := "├── ", "│   "
		if i == len(children)-1 {
			branch, below = "└── ", "    "
		}
		out.WriteString(s.paint(terminal.Dim, indent+branch))
		s.writeNode(out, child)
		s.writeChildren(out, indent+below, child.Children)
	}
}
