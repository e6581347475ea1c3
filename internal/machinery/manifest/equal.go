package manifest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/budget"
)

// sameScalar compares texts, numbers and booleans: numbers by value (1 is 1.0), of integers by all their digits, and quantities by what
// they mean.
func sameScalar(at position, required, live any) bool {
	if required == live {
		return true
	}
	if live == nil {
		return false
	}
	want, wantIsNumber := number(required)
	have, haveIsNumber := number(live)
	if wantIsNumber && haveIsNumber {
		return want == have && !areIntegers(required, live)
	}
	return at.quantity && sameQuantity(required, live)
}

// areIntegers reports whether both are integers: large ones that differ may be one float64.
func areIntegers(a, b any) bool {
	_, isInteger := a.(int64)
	_, isAnother := b.(int64)
	return isInteger && isAnother
}

func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	default:
		return 0, false
	}
}

// sameQuantity compares two quantities by what they mean. One that would take minutes to compare is not the same as any other.
func sameQuantity(required, live any) bool {
	want, wantOK := quantityOf(required)
	have, haveOK := quantityOf(live)
	return wantOK && haveOK && want.Cmp(have) == 0
}

func quantityOf(value any) (resource.Quantity, bool) {
	text := fmt.Sprint(value)
	if budget.Quantity(text) != nil {
		return resource.Quantity{}, false
	}
	quantity, err := resource.ParseQuantity(text)
	return quantity, err == nil
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return equality.Semantic.DeepEqual(a, b)
}
