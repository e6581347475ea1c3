package placement

import (
	"k8s.io/apimachinery/pkg/labels"
	operator "k8s.io/apimachinery/pkg/selection"
)

// labelIndex has the clusters of each label or claim and value, so that a selective predicate is not evaluated for the whole fleet.
type labelIndex map[string]map[string][]int32

// update moves a cluster from its former labels to its present ones.
func (x labelIndex) update(id int32, former, present labels.Set) {
	for key, value := range former {
		if now, kept := present[key]; !kept || now != value {
			x.remove(id, key, value)
		}
	}
	for key, value := range present {
		if before, had := former[key]; !had || before != value {
			x.insert(id, key, value)
		}
	}
}

func (x labelIndex) insert(id int32, key, value string) {
	values := x[key]
	if values == nil {
		values = map[string][]int32{}
		x[key] = values
	}
	values[value] = append(values[value], id)
}

func (x labelIndex) remove(id int32, key, value string) {
	ids := x[key][value]
	for i, other := range ids {
		if other == id {
			ids[i] = ids[len(ids)-1]
			ids = ids[:len(ids)-1]
			break
		}
	}
	if len(ids) > 0 {
		x[key][value] = ids
		return
	}
	delete(x[key], value)
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// lookup returns lists of clusters that include all that the selector matches; size is how many these are. It chooses the requirement
// with the fewest. It reports false if no requirement is a comparison with values.
func (x labelIndex) lookup(selector labels.Selector) (lists [][]int32, size int, ok bool) {
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		switch requirement.Operator() {
		case operator.In, operator.Equals, operator.DoubleEquals:
		default:
			continue
		}
		var found [][]int32
		count := 0
		for value := range requirement.Values() {
			if ids := x[requirement.Key()][value]; len(ids) > 0 {
				found, count = append(found, ids), count+len(ids)
			}
		}
		if !ok || count < size {
			lists, size, ok = found, count, true
		}
	}
	return lists, size, ok
}
