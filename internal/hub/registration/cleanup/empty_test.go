package cleanup

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// RG-44
func TestFirst(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		priorities []string // of objects named by their index
		want       []string
	}{
		"one":                       {[]string{"7"}, []string{"0"}},
		"the lowest":                {[]string{"100", "5", "5", "50"}, []string{"1", "2"}},
		"as numbers, not as words":  {[]string{"10", "9"}, []string{"1"}},
		"none is 0":                 {[]string{"1", ""}, []string{"1"}},
		"what is no number is 0":    {[]string{"1", "low", "0"}, []string{"1", "2"}},
		"beyond the range is 0":     {[]string{"1", "-1", "101"}, []string{"1", "2"}},
		"the highest goes the last": {[]string{"100", "99"}, []string{"1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var objects []metav1.PartialObjectMetadata
			for i, p := range test.priorities {
				o := metav1.PartialObjectMetadata{}
				o.Name = string(rune('0' + i))
				if p != "" {
					o.Annotations = map[string]string{fleet.AnnotationCleanupPriority: p}
				}
				objects = append(objects, o)
			}
			var got []string
			for _, o := range first(objects) {
				got = append(got, o.Name)
			}
			if !slices.Equal(got, test.want) || len(objects) != len(test.priorities) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
