// Package pathbudget bounds what the JSONPaths of users may visit in an object.
//
// The library that reads the paths visits, for each .. in a path, all that is below each value that it has come to, and for a text all of
// its bytes; so the values multiply with each .., and with the alternatives of each union. It cannot be interrupted, which is why what it
// will visit is worked out before: from the path, and from the size and depth of the object.
package pathbudget

import (
	"errors"
	"fmt"
	"math"

	"k8s.io/client-go/util/jsonpath"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// Bounds of the paths of one object, or of one manifest.
const (
	// Paths is how many there may be.
	Paths = 250
	// PathBytes is how long one may be.
	PathBytes = 4 << 10
	// visits is how many values one path may visit, and totalVisits how many all paths of an object may.
	visits      = 2_000_000
	totalVisits = 10_000_000
	// mostLevels is how deep an object may be nested that is searched with .. in a path.
	mostLevels = 100
)

// Parse reads a path in braces, which has to be one path and no text or loop around it.
func Parse(name, text string) (*jsonpath.ListNode, error) {
	if err := budget.Length("the JSON path", len(text), PathBytes); err != nil {
		return nil, err
	}
	parsed, err := jsonpath.Parse(name, text)
	if err != nil {
		return nil, err
	}
	list, ok := oneList(parsed.Root)
	if !ok {
		return nil, errors.New("it must be one path, such as .spec.replicas")
	}
	return list, budget.Count("alternatives of a JSON path", shapeOf(list.Nodes).alternatives, visits)
}

func oneList(root *jsonpath.ListNode) (*jsonpath.ListNode, bool) {
	if len(root.Nodes) != 1 {
		return nil, false
	}
	list, ok := root.Nodes[0].(*jsonpath.ListNode)
	return list, ok
}

// Reader is what the paths of one object may visit together.
type Reader struct {
	object any
	left   *budget.Meter
	size   *size // nil until it is needed
}

// NewReader returns a Reader of an object as JSON is decoded.
func NewReader(object any) *Reader {
	return &Reader{object: object, left: budget.NewMeter("the JSON paths of the manifest visit too many values of the object", totalVisits)}
}

// Allow fails if a path would visit more than it may, or than is left of what all may.
func (r *Reader) Allow(path *jsonpath.ListNode) error {
	n, err := r.visits(shapeOf(path.Nodes))
	if err != nil {
		return err
	}
	if n > visits {
		return &budget.Exceeded{What: fmt.Sprintf("the JSON path visits up to %d values of the object", n), Limit: fmt.Sprint(visits)}
	}
	return r.left.Spend(n)
}

func (r *Reader) visits(s shape) (int, error) {
	if !s.spreads {
		return s.alternatives, nil
	}
	if r.size == nil {
		r.size = &size{}
		r.size.measure(r.object, 1)
	}
	if s.recursions == 0 {
		return times(r.size.values, s.alternatives), nil
	}
	if r.size.levels > mostLevels {
		return 0, &budget.Exceeded{What: fmt.Sprintf("the object is nested %d levels deep, and the JSON path has ..", r.size.levels),
			Limit: fmt.Sprint(mostLevels)}
	}
	n := times(r.size.values+r.size.bytes, s.alternatives)
	for range s.recursions - 1 {
		n = times(n, r.size.levels)
	}
	return n, nil
}

// times multiplies, up to a number that is beyond all bounds.
func times(a, b int) int {
	if a > math.MaxInt32/max(b, 1) {
		return math.MaxInt32
	}
	return a * b
}

// shape is what multiplies the values that a path visits.
type shape struct {
	recursions   int
	alternatives int  // of unions, multiplied
	spreads      bool // to all elements of something
}

func shapeOf(nodes []jsonpath.Node) shape {
	s := shape{alternatives: 1}
	for _, node := range nodes {
		switch node := node.(type) {
		case *jsonpath.RecursiveNode:
			s.recursions++
			s.spreads = true
		case *jsonpath.WildcardNode:
			s.spreads = true
		case *jsonpath.ArrayNode:
			s.spreads = s.spreads || !node.Params[1].Derived
		case *jsonpath.ListNode:
			s.then(shapeOf(node.Nodes))
		case *jsonpath.FilterNode:
			s.spreads = true
			s.then(shapeOf(node.Left.Nodes))
			s.then(shapeOf(node.Right.Nodes))
		case *jsonpath.UnionNode:
			union := shape{}
			for _, one := range node.Nodes {
				union.or(shapeOf(one.Nodes))
			}
			s.then(union)
		}
	}
	return s
}

func (s *shape) then(next shape) {
	s.recursions += next.recursions
	s.alternatives = times(s.alternatives, max(next.alternatives, 1))
	s.spreads = s.spreads || next.spreads
}

func (s *shape) or(other shape) {
	s.recursions = max(s.recursions, other.recursions)
	s.alternatives += other.alternatives
	s.spreads = s.spreads || other.spreads
}

// size is that of an object.
type size struct{ values, bytes, levels int }

func (s *size) measure(value any, level int) {
	s.values++
	s.levels = max(s.levels, level)
	switch value := value.(type) {
	case map[string]any:
		for _, one := range value {
			s.measure(one, level+1)
		}
	case []any:
		for _, one := range value {
			s.measure(one, level+1)
		}
	case string:
		s.bytes += len(value)
	}
}
