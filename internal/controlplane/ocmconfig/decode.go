package ocmconfig

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// document is a decoded file: where each field stands and what is wrong with it.
type document struct {
	file     string
	lines    map[string]int
	problems []problem
}

// problem is a mistake in the file; line is 0 for what is not there.
type problem struct {
	line int
	text string
}

// decode fills config and notes every field that does not exist or does not fit.
func decode(file string, content []byte, config *Config) *document {
	d := &document{file: file, lines: map[string]int{}}
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		d.problems = append(d.problems, problem{text: fmt.Sprintf("%s: is not YAML: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))})
		return d
	}
	if root.Kind == yaml.DocumentNode {
		d.value(root.Content[0], "", reflect.ValueOf(config).Elem())
	}
	return d
}

func (d *document) value(node *yaml.Node, path string, into reflect.Value) {
	switch {
	case node.Kind == yaml.AliasNode:
		d.value(node.Alias, path, into)
	case node.Tag == "!!null":
		// A section without content has its defaults.
	case into.Kind() == reflect.Struct:
		d.section(node, path, into)
	default:
		if err := node.Decode(into.Addr().Interface()); err != nil {
			d.reject(node.Line, path, "%s", describe(node, into.Type()))
		}
	}
}

func (d *document) section(node *yaml.Node, path string, into reflect.Value) {
	fields := fieldsOf(into)
	if node.Kind != yaml.MappingNode {
		d.reject(node.Line, path, "must be a section with the fields %s", strings.Join(fields.names(), ", "))
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		field := join(path, key.Value)
		target, known := fields.named(key.Value)
		if !known {
			d.reject(key.Line, field, "unknown field; valid here are %s", strings.Join(fields.names(), ", "))
			continue
		}
		if first, twice := d.lines[field]; twice {
			d.reject(key.Line, field, "already given in line %d", first)
			continue
		}
		d.lines[field] = key.Line
		d.value(value, field, target)
	}
}

func describe(node *yaml.Node, want reflect.Type) string {
	got := "a list or section"
	if node.Kind == yaml.ScalarNode {
		got = fmt.Sprintf("%q", node.Value)
	}
	switch want.Kind() {
	case reflect.Int:
		return got + " is no whole number"
	case reflect.Slice:
		return got + " is no list of strings; write each in a line of its own that starts with \"- \""
	case reflect.Map:
		return got + " is no section of names and strings"
	default:
		return got + " is no string"
	}
}

// sectionFields are the fields of a section by their names in the file, in the order of the struct.
type sectionFields []sectionField

type sectionField struct {
	name  string
	value reflect.Value
}

func fieldsOf(section reflect.Value) sectionFields {
	var fields sectionFields
	for i := range section.NumField() {
		if name := section.Type().Field(i).Tag.Get("yaml"); name != "-" {
			fields = append(fields, sectionField{name, section.Field(i)})
		}
	}
	return fields
}

func (f sectionFields) named(name string) (reflect.Value, bool) {
	for _, field := range f {
		if field.name == name {
			return field.value, true
		}
	}
	return reflect.Value{}, false
}

func (f sectionFields) names() []string {
	var names []string
	for _, field := range f {
		names = append(names, field.name)
	}
	return names
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// has says whether the file names the field.
func (d *document) has(field string) bool {
	_, found := d.lines[field]
	return found
}

func (d *document) reject(line int, field, format string, args ...any) {
	where := d.file
	if line > 0 {
		where = fmt.Sprintf("%s:%d", d.file, line)
	}
	if field != "" {
		where += ": " + field
	}
	d.problems = append(d.problems, problem{line: line, text: where + ": " + fmt.Sprintf(format, args...)})
}

// invalid notes a field whose value cannot be used.
func (d *document) invalid(field, format string, args ...any) {
	d.reject(d.lines[field], field, format, args...)
}

// err is every mistake in the order of the file, one a line.
func (d *document) err() error {
	slices.SortFunc(d.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.text, b.text))
	})
	var all []error
	for _, p := range d.problems {
		all = append(all, errors.New(p.text))
	}
	return errors.Join(all...)
}
