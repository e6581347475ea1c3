package budget

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// YAML fails if a document with its aliases expanded would have more bytes than Result allows, or is nested deeper than users need. A
// few bytes of aliases may stand for gigabytes. It ignores texts that are no YAML, which fail where they are read.
func YAML(text []byte) error {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil //nolint:nilerr // not for this to say
	}
	limit := Result(len(text))
	m := &expansion{left: limit}
	if !m.add(&root, 0) {
		return &Exceeded{What: "with its aliases and anchors, the YAML is too large or nested too deep",
			Limit: fmt.Sprintf("%d bytes and %d levels", limit, mostLevels)}
	}
	return nil
}

const mostLevels = 100

// expansion counts the bytes of a document with its aliases written out.
type expansion struct{ left int }

func (e *expansion) add(node *yaml.Node, level int) bool {
	if e.left -= len(node.Value) + 1; e.left < 0 || level > mostLevels {
		return false
	}
	if node.Kind == yaml.AliasNode {
		return e.add(node.Alias, level+1)
	}
	for _, child := range node.Content {
		if !e.add(child, level+1) {
			return false
		}
	}
	return true
}
