package manifest

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sameScalar compares texts, numbers and booleans: numbers by value (1 is 1.0), quantities by what they mean.
func sameScalar(at place, required, live any) bool {
	if required == live {
		return true
	}
	if live == nil {
		return false
	}
	want, wantIsNumber := number(required)
	have, haveIsNumber := number(live)
	if wantIsNumber && haveIsNumber {
		return want == have
	}
	return at.quantity && sameQuantity(required, live)
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

func sameQuantity(required, live any) bool {
	want, err := resource.ParseQuantity(fmt.Sprint(required))
	if err != nil {
		return false
	}
	have, err := resource.ParseQuantity(fmt.Sprint(live))
	return err == nil && want.Cmp(have) == 0
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return equality.Semantic.DeepEqual(a, b)
}
