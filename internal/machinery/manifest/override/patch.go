package override

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

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

// share lets others have parts of the document, which copies what it changes from now on.
func (d *document) share() { d.owner = &owner{} }

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

// index is where a part is that is there.
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
	at, err := p.place(key)
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

// place is where a part comes to be that is not there.
func (p *parts) place(key string) (at int, err error) {
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

// mergePatch applies a JSON merge patch (RFC 7386).
func (d *document) mergePatch(patch *value) error {
	if err := d.allowed.steps.Spend(1); err != nil {
		return err
	}
	return d.merge(&d.root, patch)
}

func (d *document) merge(v, patch *value) error {
	if !patch.isObject() {
		*v = *patch
		return nil
	}
	if err := d.allowed.steps.Spend(len(patch.parts.keys) >> 2); err != nil {
		return err
	}
	if !v.isObject() {
		*v = value{parts: &parts{owner: d.owner}}
	}
	p, err := d.own(v)
	if err != nil {
		return err
	}
	for i, key := range patch.parts.keys {
		if err := d.mergeMember(p, key, &patch.parts.values[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) mergeMember(p *parts, key string, patch *value) error {
	at, found := slices.BinarySearch(p.keys, key)
	if patch.isNull() {
		if !found {
			return nil
		}
		return d.dropPart(p, at)
	}
	if found {
		return d.merge(&p.values[at], patch)
	}
	v, err := d.insert(p, key, null)
	if err != nil {
		return err
	}
	return d.merge(v, patch)
}

func (d *document) dropPart(p *parts, at int) error {
	if err := d.move(p, at); err != nil {
		return err
	}
	p.drop(at)
	return nil
}

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
	d.share()
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

func (d *document) equal(a, b *value) (bool, error) {
	if a.parts == nil && b.parts == nil {
		return sameScalar(a.text, b.text), d.allowed.steps.Spend((len(a.text) + len(b.text)) >> 8)
	}
	if a.parts == nil || b.parts == nil || a.parts.list != b.parts.list || !slices.Equal(a.parts.keys, b.parts.keys) ||
		len(a.parts.values) != len(b.parts.values) {
		return false, nil
	}
	if err := d.allowed.steps.Spend(len(a.parts.values) >> 4); err != nil {
		return false, err
	}
	for i := range a.parts.values {
		if same, err := d.equal(&a.parts.values[i], &b.parts.values[i]); err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func sameScalar(a, b []byte) bool {
	if string(a) == string(b) || len(a) == 0 || len(b) == 0 {
		return string(a) == string(b)
	}
	if a[0] == '"' && b[0] == '"' {
		return unquote(a) == unquote(b)
	}
	return sameNumber(a, b)
}

// sameNumber compares integers as such: as floating-point numbers, different ones may be the same.
func sameNumber(a, b []byte) bool {
	m, errM := strconv.ParseInt(string(a), 10, 64)
	n, errN := strconv.ParseInt(string(b), 10, 64)
	if errM == nil && errN == nil {
		return m == n
	}
	var x, y float64
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && x == y && string(a) != "null" && string(b) != "null"
}
