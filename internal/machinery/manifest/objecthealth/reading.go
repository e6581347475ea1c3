package objecthealth

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// reading is an object to read fields from. A field of a wrong type reads as if it were not there.
type reading struct{ content map[string]any }

func (o reading) number(fields ...string) (n int64, found bool) {
	value, _, _ := unstructured.NestedFieldNoCopy(o.content, fields...)
	n, found = value.(int64)
	return n, found
}

// count is a number, or 0.
func (o reading) count(fields ...string) int64 {
	n, _ := o.number(fields...)
	return n
}

// desired is spec.replicas, which is 1 if nothing is said.
func (o reading) desired() int64 {
	if n, found := o.number("spec", "replicas"); found {
		return n
	}
	return 1
}

// isTrue reports whether a field is true.
func (o reading) isTrue(fields ...string) bool {
	value, _, _ := unstructured.NestedBool(o.content, fields...)
	return value
}

func (o reading) text(fields ...string) string {
	value, _, _ := unstructured.NestedFieldNoCopy(o.content, fields...)
	text, _ := value.(string)
	return text
}

func (o reading) list(fields ...string) []reading {
	value, _, _ := unstructured.NestedFieldNoCopy(o.content, fields...)
	elements, _ := value.([]any)
	var list []reading
	for _, element := range elements {
		if content, ok := element.(map[string]any); ok {
			list = append(list, reading{content})
		}
	}
	return list
}

func (o reading) condition(conditionType string) condition {
	for _, c := range o.list("status", "conditions") {
		if c.text("type") == conditionType {
			return condition{conditionType, c.text("status"), c.text("reason"), c.text("message")}
		}
	}
	return condition{}
}

// condition of an object, empty if it has none of the type.
type condition struct{ kind, status, reason, message string }

func (c condition) exists() bool  { return c.kind != "" }
func (c condition) isTrue() bool  { return c.status == "True" }
func (c condition) isFalse() bool { return c.status == "False" }

// String is what the condition says, for messages.
func (c condition) String() string {
	switch {
	case c.message != "" && c.reason != "":
		return fmt.Sprintf("%s: %s", c.reason, c.message)
	case c.message != "":
		return c.message
	case c.reason != "":
		return c.reason
	default:
		return fmt.Sprintf("the condition %s is %s", c.kind, c.status)
	}
}
