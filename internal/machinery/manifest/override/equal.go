package override

import (
	"encoding/json"
	"slices"
	"strconv"
)

// equal reports whether two values are the same JSON.
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
