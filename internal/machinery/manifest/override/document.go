package override

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

var (
	errMissing = errors.New("there is nothing at the path")
	errNoParts = errors.New("the path leads through what is neither an object nor a list")
)

// document is a manifest that is being changed.
type document struct {
	root    value
	owner   *owner
	allowed *allowance
}

// pointer is a JSON pointer (RFC 6901).
type pointer struct {
	text string
	keys []string
}

func pointerOf(text string) pointer {
	p := pointer{text: text}
	if text == "" {
		return p
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for key := range strings.SplitSeq(text[1:], "/") {
		p.keys = append(p.keys, unescape.Replace(key))
	}
	return p
}

// steps are those that it takes to follow the pointer.
func (p pointer) steps() int { return len(p.keys) >> 4 }

func (p pointer) last() string { return p.keys[len(p.keys)-1] }

// copyOnWrite lets others have parts of the document, which copies what it changes from now on.
func (d *document) copyOnWrite() { d.owner = &owner{} }

// own is what an object or a list has, for the document to change.
func (d *document) own(v *value) (*parts, error) {
	switch {
	case v.parts == nil:
		return nil, errNoParts
	case v.parts.owner == d.owner:
		return v.parts, nil
	}
	if err := d.allowed.steps.Spend(len(v.parts.values) >> 5); err != nil {
		return nil, err
	}
	v.parts = &parts{list: v.parts.list, keys: slices.Clone(v.parts.keys), values: slices.Clone(v.parts.values), owner: d.owner}
	v.text = nil
	return v.parts, nil
}

// empty is a list if the key can be one of an element, and an object otherwise.
func (d *document) empty(key string) value {
	_, err := strconv.Atoi(key)
	return value{parts: &parts{list: err == nil || key == "-", owner: d.owner}}
}

// get is what is at the pointer.
func (d *document) get(at pointer) (*value, error) {
	v := &d.root
	for _, key := range at.keys {
		if v.parts == nil {
			return nil, errMissing
		}
		i, err := v.parts.index(key)
		if err != nil {
			return nil, err
		}
		v = &v.parts.values[i]
	}
	return v, nil
}

// parent is what has the last key of the pointer, for the document to change.
func (d *document) parent(at pointer) (*parts, error) {
	v := &d.root
	for _, key := range at.keys[:len(at.keys)-1] {
		p, err := d.own(v)
		if err != nil {
			return nil, err
		}
		i, err := p.index(key)
		if err != nil {
			return nil, err
		}
		v = &p.values[i]
	}
	return d.own(v)
}

// index is where an existing part is.
func (p *parts) index(key string) (int, error) {
	if !p.list {
		if at, found := slices.BinarySearch(p.keys, key); found {
			return at, nil
		}
		return 0, errMissing
	}
	at, err := indexAmong(key, len(p.values))
	if err == nil && at >= len(p.values) {
		err = errMissing
	}
	return at, err
}

// indexAmong reads an index into a list. One below 0 counts from the end.
func indexAmong(key string, n int) (int, error) {
	at, err := strconv.Atoi(key)
	if err != nil {
		return 0, fmt.Errorf("%q is no index of a list", key)
	}
	if at < 0 {
		at += n
	}
	if at < 0 || at > n {
		return at, errMissing
	}
	return at, nil
}

// insert adds a part: an element pushes those behind it aside.
func (d *document) insert(p *parts, key string, v value) (*value, error) {
	at, err := p.insertionIndex(key)
	if err != nil {
		return nil, err
	}
	if err := d.move(p, at); err != nil {
		return nil, err
	}
	if !p.list {
		p.keys = slices.Insert(p.keys, at, key)
	}
	p.values = slices.Insert(p.values, at, v)
	return &p.values[at], nil
}

// insertionIndex is where a missing part is to be inserted.
func (p *parts) insertionIndex(key string) (at int, err error) {
	switch {
	case !p.list:
		at, _ = slices.BinarySearch(p.keys, key)
		return at, nil
	case key == "-":
		return len(p.values), nil
	}
	if at, err = indexAmong(key, len(p.values)+1); err == nil && at > len(p.values) {
		err = errMissing
	}
	return at, err
}

// move takes the steps for moving all parts from one on.
func (d *document) move(p *parts, from int) error {
	return d.allowed.steps.Spend((len(p.values) - from) >> 8)
}

// set makes what is missing on the way to a field, and the field. It fails on an element further on than the one after the last: those in
// between would have to be made up, and there may be any number of them.
func (d *document) set(to pointer, v value) error {
	if err := d.allowed.steps.Spend(1 + to.steps()); err != nil {
		return err
	}
	at, last := &d.root, len(to.keys)-1
	for i := range last {
		p, err := d.own(at)
		if err != nil {
			return err
		}
		if at, err = d.step(p, to, i); err != nil {
			return err
		}
		if at.isNull() {
			*at = d.empty(to.keys[i+1])
		}
	}
	p, err := d.own(at)
	if err != nil {
		return err
	}
	return d.setPart(p, to, v)
}

// step is the part on the way to a field, null if it was missing.
func (d *document) step(p *parts, to pointer, i int) (*value, error) {
	if at, err := p.index(to.keys[i]); err == nil {
		return &p.values[at], nil
	}
	if err := p.padding(to, i); err != nil {
		return nil, err
	}
	return d.insert(p, to.keys[i], null)
}

func (d *document) setPart(p *parts, to pointer, v value) error {
	fromEnd := p.list && strings.HasPrefix(to.last(), "-")
	if at, err := p.index(to.last()); err == nil && !fromEnd {
		p.values[at] = v // to insert it would push the element aside
		return nil
	}
	if err := p.padding(to, len(to.keys)-1); err != nil {
		return err
	}
	_, err := d.insert(p, to.last(), v)
	return err
}

// padding fails if there would have to be more elements in between.
func (p *parts) padding(to pointer, i int) error {
	n, err := strconv.ParseUint(to.keys[i], 10, 64)
	if !p.list || err != nil || n <= uint64(len(p.values)) {
		return nil //nolint:nilerr // for insert to say
	}
	return &budget.Exceeded{
		What:  fmt.Sprintf("%s is element %d of a list of %d", strings.Join(strings.Split(to.text, "/")[:i+2], "/"), n, len(p.values)),
		Limit: fmt.Sprintf("%d, the one after the last", len(p.values)),
	}
}
