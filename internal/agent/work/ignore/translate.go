package ignore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// fromPointer translates a JSON pointer (RFC 6901). What it points at need not be there.
func fromPointer(pointer string) (string, error) {
	if pointer == "" {
		return "", errors.New("the empty pointer is the whole object; name a field, such as /spec/replicas")
	}
	if !strings.HasPrefix(pointer, "/") {
		return "", errors.New("a JSON pointer begins with a slash, such as /spec/replicas")
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	path := "."
	for token := range strings.SplitSeq(pointer[1:], "/") {
		key := unescape.Replace(token)
		step := fmt.Sprintf(".[%s]?", quoted(key))
		if index, err := strconv.ParseUint(key, 10, 31); err == nil && strconv.FormatUint(index, 10) == key {
			step = fmt.Sprintf(`(if type == "array" then .[%d]? else %s end)`, index, step)
		}
		path += " | " + step
	}
	return path, nil
}

// quoted is a text as jq writes it, which is as JSON does.
func quoted(text string) string {
	encoded, err := json.Marshal(text)
	if err != nil {
		panic(err) // A text can be encoded.
	}
	return string(encoded)
}

// fromJSONPath translates a JSON path as kubectl knows them, with or without the braces. What it names need not be there.
func fromJSONPath(path string) (string, error) {
	text := path
	if !strings.HasPrefix(text, "{") {
		if !strings.HasPrefix(text, ".") && !strings.HasPrefix(text, "[") && !strings.HasPrefix(text, "$") {
			text = "." + text
		}
		text = "{" + text + "}"
	}
	parsed, err := jsonpath.Parse(path, text)
	if err != nil {
		return "", err
	}
	if len(parsed.Root.Nodes) != 1 {
		return "", errors.New("it must be one path, such as .spec.replicas")
	}
	list, ok := parsed.Root.Nodes[0].(*jsonpath.ListNode)
	if !ok || len(list.Nodes) == 0 {
		return "", errors.New("it names no field; write a path such as .spec.replicas")
	}
	return fromNodes(list.Nodes)
}

func fromNodes(nodes []jsonpath.Node) (string, error) {
	path := "."
	for _, node := range nodes {
		step, err := fromNode(node)
		if err != nil {
			return "", err
		}
		path += " | " + step
	}
	return path, nil
}

func fromNode(node jsonpath.Node) (string, error) {
	switch node := node.(type) {
	case *jsonpath.FieldNode:
		if node.Value == "" {
			return ".", nil // the object itself, as in $
		}
		return fmt.Sprintf(".[%s]?", quoted(node.Value)), nil
	case *jsonpath.WildcardNode:
		return ".[]?", nil
	case *jsonpath.RecursiveNode:
		return "..", nil
	case *jsonpath.ArrayNode:
		return fromArray(node)
	case *jsonpath.UnionNode:
		return fromUnion(node)
	case *jsonpath.FilterNode:
		return fromFilter(node)
	case *jsonpath.ListNode:
		inner, err := fromNodes(node.Nodes)
		return "(" + inner + ")", err
	case *jsonpath.TextNode:
		return quoted(node.Text), nil
	case *jsonpath.IntNode:
		return strconv.Itoa(node.Value), nil
	case *jsonpath.FloatNode:
		return strconv.FormatFloat(node.Value, 'g', -1, 64), nil
	case *jsonpath.BoolNode:
		return strconv.FormatBool(node.Value), nil
	default:
		return "", fmt.Errorf("%s cannot be used here; use jqPathExpressions for it", node)
	}
}

func fromArray(node *jsonpath.ArrayNode) (string, error) {
	first, end, step := node.Params[0], node.Params[1], node.Params[2]
	switch {
	case step.Known && step.Value != 1:
		return "", errors.New("a step cannot be used here; use jqPathExpressions for it")
	case first.Known && end.Known && end.Derived:
		return fmt.Sprintf("(if type == \"array\" then .[%d] else empty end)", first.Value), nil
	case first.Known && end.Known:
		return fmt.Sprintf(".[%d:%d]?", first.Value, end.Value), nil
	case first.Known:
		return fmt.Sprintf(".[%d:]?", first.Value), nil
	case end.Known:
		return fmt.Sprintf(".[:%d]?", end.Value), nil
	default:
		return ".[]?", nil
	}
}

func fromUnion(node *jsonpath.UnionNode) (string, error) {
	alternatives := make([]string, 0, len(node.Nodes))
	for _, list := range node.Nodes {
		one, err := fromNodes(list.Nodes)
		if err != nil {
			return "", err
		}
		alternatives = append(alternatives, "("+one+")")
	}
	return "(" + strings.Join(alternatives, ", ") + ")", nil
}

func fromFilter(node *jsonpath.FilterNode) (string, error) {
	left, err := fromNodes(node.Left.Nodes)
	if err != nil {
		return "", err
	}
	if node.Operator == "exists" {
		return fmt.Sprintf(".[]? | select((%s) != null)", left), nil
	}
	right, err := fromNodes(node.Right.Nodes)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(".[]? | select((%s) %s (%s))", left, node.Operator, right), nil
}
