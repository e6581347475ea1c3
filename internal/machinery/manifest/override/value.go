package override

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"unicode/utf8"
)

// value is a JSON value. What many clusters have in common is read once and shared by their documents: a document that changes an object or
// a list has its own copy of that one, and not of what is in it.
type value struct {
	// text is the value as JSON. An object or a list that was changed has none.
	text []byte
	// parts are those of an object or a list, and nil otherwise.
	parts *parts
}

// parts are the elements of a list, or the members of an object in the order of their keys.
type parts struct {
	list   bool
	keys   []string
	values []value
	// owner is the document that may change them; others copy them first.
	owner *owner
}

// owner stands for a document until what it has made is shared.
type owner struct{ _ byte }

var null = value{text: []byte("null")}

func (v *value) isNull() bool   { return string(v.text) == "null" }
func (v *value) isObject() bool { return v.parts != nil && !v.parts.list }

// find is the member of an object.
func (p *parts) find(key string) *value {
	if at, found := slices.BinarySearch(p.keys, key); found {
		return &p.values[at]
	}
	return nil
}

// put sets a member of an object.
func (p *parts) put(key string, v value) {
	at, found := slices.BinarySearch(p.keys, key)
	if !found {
		p.keys, p.values = slices.Insert(p.keys, at, key), slices.Insert(p.values, at, null)
	}
	p.values[at] = v
}

// drop removes an element or a member.
func (p *parts) drop(at int) {
	p.values = slices.Delete(p.values, at, at+1)
	if !p.list {
		p.keys = slices.Delete(p.keys, at, at+1)
	}
}

// read reads a JSON text.
func read(text []byte) (value, error) {
	var compact bytes.Buffer
	compact.Grow(len(text))
	if err := json.Compact(&compact, text); err != nil {
		return value{}, err
	}
	if compact.Len() == 0 {
		return value{}, errors.New("unexpected end of JSON input")
	}
	r := reader{text: compact.Bytes()}
	return r.value(), nil
}

// reader reads a text that is known to be JSON, without spaces.
type reader struct {
	text []byte
	at   int
}

func (r *reader) value() value {
	start, v := r.at, value{}
	switch r.text[r.at] {
	case '{':
		v.parts = r.object()
	case '[':
		v.parts = r.list()
	case '"':
		r.string()
	default:
		for r.at < len(r.text) && !bytes.ContainsRune([]byte(",]}"), rune(r.text[r.at])) {
			r.at++
		}
	}
	v.text = r.text[start:r.at:r.at]
	return v
}

func (r *reader) list() *parts {
	p := &parts{list: true}
	for r.next(']') {
		p.values = append(p.values, r.value())
	}
	return p
}

func (r *reader) object() *parts {
	p := &parts{}
	for r.next('}') {
		key := r.key()
		r.at++ // the colon
		if v := r.value(); len(p.keys) == 0 || p.keys[len(p.keys)-1] < key {
			p.keys, p.values = append(p.keys, key), append(p.values, v) // as an API server orders them
		} else {
			p.put(key, v)
		}
	}
	return p
}

// next goes to the next part, or behind the end.
func (r *reader) next(end byte) bool {
	r.at++ // the bracket, or the comma
	switch {
	case r.text[r.at-1] == end:
		return false
	case r.text[r.at] == end: // an empty one
		r.at++
		return false
	}
	return true
}

func (r *reader) key() (key string) {
	start := r.at
	r.string()
	return unquote(r.text[start:r.at])
}

func (r *reader) string() {
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
}

// unquote reads a JSON string.
func unquote(quoted []byte) (text string) {
	if inside := quoted[1 : len(quoted)-1]; !bytes.ContainsRune(inside, '\\') && utf8.Valid(inside) {
		return string(inside)
	}
	_ = json.Unmarshal(quoted, &text) // it is a string
	return text
}

// size is how many bytes the value has as JSON, and visited how many values it took to find that out.
func (v *value) size() (size, visited int) {
	if v.text != nil {
		return len(v.text), 1
	}
	size = 2 + max(len(v.parts.values)-1, 0)
	for i := range v.parts.values {
		if !v.parts.list {
			size += sizeOfQuoted(v.parts.keys[i]) + len(":")
		}
		more, seen := v.parts.values[i].size()
		size, visited = size+more, visited+seen
	}
	return size, visited + 1
}

// appendTo writes the value as JSON.
func (v *value) appendTo(text []byte) []byte {
	if v.text != nil {
		return append(text, v.text...)
	}
	brackets := "{}"
	if v.parts.list {
		brackets = "[]"
	}
	text = append(text, brackets[0])
	for i := range v.parts.values {
		if i > 0 {
			text = append(text, ',')
		}
		if !v.parts.list {
			text = append(appendQuoted(text, v.parts.keys[i]), ':')
		}
		text = v.parts.values[i].appendTo(text)
	}
	return append(text, brackets[1])
}

func appendQuoted(text []byte, key string) []byte {
	if !isPlain(key) {
		return append(text, quote(key)...)
	}
	return append(append(append(text, '"'), key...), '"')
}

func sizeOfQuoted(key string) int {
	if !isPlain(key) {
		return len(quote(key))
	}
	return len(key) + len(`""`)
}

func quote(key string) []byte {
	quoted, _ := json.Marshal(key) // a string is JSON
	return quoted
}

// isPlain reports whether a text is written as it is, between quotes.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
