package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Format is how a result is written: the value of the flag --output.
type Format string

// The formats. Tree and table are for people, YAML and JSON have every field and are for programs.
const (
	Tree  Format = "tree"
	Table Format = "table"
	YAML  Format = "yaml"
	JSON  Format = "json"
	Text  Format = "text"
	// Wide is a table with more columns.
	Wide Format = "wide"
	// Name is one line for each object, as kubectl takes it.
	Name Format = "name"
)

// Choice is a --output flag that accepts some of the formats. It implements pflag.Value.
type Choice struct {
	format  Format
	allowed []Format
}

// NewChoice returns a flag that accepts the given formats; the first is the default.
func NewChoice(allowed ...Format) *Choice {
	return &Choice{format: allowed[0], allowed: allowed}
}

// Format is the chosen one.
func (c *Choice) Format() Format { return c.format }

// Names are the accepted values.
func (c *Choice) Names() []string {
	names := make([]string, len(c.allowed))
	for i, format := range c.allowed {
		names[i] = string(format)
	}
	return names
}

// String is the chosen format.
func (c *Choice) String() string { return string(c.format) }

// Type names the flag's values in the help.
func (c *Choice) Type() string { return strings.Join(c.Names(), "|") }

// Set chooses a format; the error lists those there are.
func (c *Choice) Set(value string) error {
	if !slices.Contains(c.allowed, Format(value)) {
		return fmt.Errorf("%q is none of %s", value, strings.Join(c.Names(), ", "))
	}
	c.format = Format(value)
	return nil
}

// View is something that can be written in several formats. Object has every field, for YAML and JSON; a nil Grid, Root or
// Names means that the view is never written in that format.
type View struct {
	Object any
	Grid   func() Grid
	Root   func() Node
	Names  func() []string
}

// namesOf writes the objects of a resource as kubectl takes them: resource.group/name.
func namesOf[T any, P interface {
	*T
	metav1.Object
}](resource string, objects []T) func() []string {
	return func() []string {
		names := make([]string, len(objects))
		for i := range objects {
			names[i] = resource + "/" + P(&objects[i]).GetName()
		}
		return names
	}
}

// Write writes the view in a format.
func (s Style) Write(w io.Writer, format Format, view View) error {
	switch format {
	case JSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(view.Object)
	case YAML:
		content, err := yaml.Marshal(view.Object)
		if err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	case Name:
		for _, name := range view.Names() {
			if _, err := fmt.Fprintln(w, name); err != nil {
				return err
			}
		}
		return nil
	case Table:
		return s.WriteGrid(w, view.Grid())
	default:
		return s.WriteTree(w, view.Root())
	}
}
