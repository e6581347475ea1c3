package override

import (
	"errors"
	"fmt"

	jsonpatch "github.com/evanphx/json-patch/v5"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	kind       string
	path, from pointer
	value      value
}

// operationsOf reads a JSON patch.
func operationsOf(text []byte) ([]operation, error) {
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, err
	}
	operations := make([]operation, len(patch))
	for i, o := range patch {
		if operations[i], err = operationOf(o); err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return operations, nil
}

func operationOf(o jsonpatch.Operation) (operation, error) {
	read := operation{kind: o.Kind()}
	path, err := o.Path()
	if err != nil {
		return read, err
	}
	from := ""
	if read.kind == "move" || read.kind == "copy" {
		if from, err = o.From(); err != nil {
			return read, err
		}
	}
	for _, p := range []string{path, from} {
		if p != "" && p[0] != '/' {
			return read, fmt.Errorf("%q is no JSON pointer such as /spec/replicas", p)
		}
	}
	read.path, read.from = pointerOf(path), pointerOf(from)
	read.value, err = valueOf(o)
	return read, err
}

func valueOf(o jsonpatch.Operation) (value, error) {
	if text := o["value"]; text != nil {
		return read(*text)
	}
	return null, nil
}

// patch applies the operations of a JSON patch.
func (d *document) patch(operations []operation) error {
	for i := range operations {
		o := &operations[i]
		if err := d.allowed.steps.Spend(1 + o.path.steps() + o.from.steps()); err != nil {
			return err
		}
		if err := d.apply(o); err != nil {
			return fmt.Errorf("operation %d (%s %s): %w", i, o.kind, o.path.text, err)
		}
	}
	return nil
}

func (d *document) apply(o *operation) error {
	switch o.kind {
	case "add":
		return d.add(o.path, o.value)
	case "remove":
		_, err := d.remove(o.path)
		return err
	case "replace":
		return d.replace(o.path, o.value)
	case "move":
		v, err := d.remove(o.from)
		if err != nil {
			return err
		}
		return d.add(o.path, v)
	case "copy":
		return d.copy(o.from, o.path)
	case "test":
		return d.test(o.path, &o.value)
	default:
		return fmt.Errorf("there is no operation %q", o.kind)
	}
}

func (d *document) add(at pointer, v value) error {
	if len(at.keys) == 0 {
		d.root = v
		return nil
	}
	p, err := d.parent(at)
	if err != nil {
		return err
	}
	if !p.list {
		if there := p.find(at.last()); there != nil {
			*there = v
			return nil
		}
	}
	_, err = d.insert(p, at.last(), v)
	return err
}

func (d *document) remove(at pointer) (value, error) {
	if len(at.keys) == 0 {
		return value{}, errors.New("the whole manifest cannot be removed or moved")
	}
	p, err := d.parent(at)
	if err != nil {
		return value{}, err
	}
	i, err := p.index(at.last())
	if err != nil {
		return value{}, err
	}
	v := p.values[i]
	return v, d.dropPart(p, i)
}

func (d *document) replace(at pointer, v value) error {
	if len(at.keys) == 0 {
		d.root = v
		return nil
	}
	p, err := d.parent(at)
	if err != nil {
		return err
	}
	i, err := p.index(at.last())
	if err != nil {
		return err
	}
	p.values[i] = v
	return nil
}

// copy adds what is there already a second time. Copies of copies double it with each operation.
func (d *document) copy(from, to pointer) error {
	source, err := d.get(from)
	if err != nil {
		return err
	}
	size, err := d.measure(source)
	if err != nil {
		return err
	}
	if d.allowed.copies += size; d.allowed.copies > d.allowed.most {
		return &budget.Exceeded{What: "its copy operations copy too many bytes", Limit: fmt.Sprintf("%d bytes", d.allowed.most)}
	}
	v := *source
	d.copyOnWrite()
	return d.add(to, v)
}

// measure is the size of a value.
func (d *document) measure(v *value) (int, error) {
	size, visited := v.size()
	return size, d.allowed.steps.Spend(visited >> 5)
}

// test fails if something else is at the path. Nothing is null.
func (d *document) test(at pointer, want *value) error {
	v, err := d.get(at)
	if errors.Is(err, errMissing) && want.isNull() {
		return nil
	}
	if err != nil {
		return err
	}
	if same, err := d.equal(v, want); err != nil || same {
		return err
	}
	return errors.New("the value there is another one")
}
