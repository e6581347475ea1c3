package appliedmanifestwork

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// completeWork has so many complete manifests, each with a value and a message of so many random bytes.
func completeWork(isComplete bool, manifests, size int) *workv1.ManifestWork {
	random := rand.New(rand.NewPCG(1, 2)) // what cannot be compressed, and is the same each time
	text := func() (s string) {
		for len(s) < size {
			s += fmt.Sprintf("%016x", random.Uint64())
		}
		return s
	}
	complete := metav1.Condition{Type: fleet.ConditionComplete, Status: metav1.ConditionTrue}
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{UID: "work"}}
	for i := range manifests {
		complete.Message = text()
		work.Status.ResourceStatus.Manifests = append(work.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Kind: "Pod", Name: fmt.Sprint("pod-", i)},
			Conditions:   []metav1.Condition{complete, {Type: fleet.ConditionApplied, Status: metav1.ConditionTrue}},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "value",
				Value: workv1.FieldValue{Type: workv1.String, String: ptr.To(text())}}}},
		})
	}
	if isComplete {
		work.Status.Conditions = []metav1.Condition{complete}
	}
	return work
}

// WK-16: what is complete is written down whole where there is room, and else as much of it as keeps it from being applied again.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		work    *workv1.ManifestWork
		reduced bool
	}{
		"a work":                {completeWork(true, 3, 100), false},
		"manifests":             {completeWork(false, 3, 100), false},
		"a large work":          {completeWork(true, 100, 1000), true},
		"many manifests":        {completeWork(false, 100, 1000), true},
		"a work of many, small": {completeWork(true, 500, 0), false},
	} {
		encoded := NewCompletion(test.work).Encode()
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationCompletion: encoded}}}
		c := CompletionOf(amw, "work")
		switch {
		case c == nil || len(encoded) > maxCompletion || c.Reduced != test.reduced:
			t.Errorf("%s: %+v in %d bytes", name, c, len(encoded))
			continue
		case !test.reduced && !equality.Semantic.DeepEqual(c.Status, test.work.Status):
			t.Errorf("%s: %+v", name, c.Status)
		case len(test.work.Status.Conditions) > 0:
			if !meta.IsStatusConditionTrue(c.Status.Conditions, fleet.ConditionComplete) {
				t.Errorf("%s: the work is not complete", name)
			}
			continue
		}
		for i, m := range test.work.Status.ResourceStatus.Manifests {
			kept := c.Status.ResourceStatus.Manifests[i]
			if kept.ResourceMeta != m.ResourceMeta || !meta.IsStatusConditionTrue(kept.Conditions, fleet.ConditionComplete) {
				t.Errorf("%s: manifest %d is %+v", name, i, kept)
			}
		}
		if CompletionOf(amw, "another") != nil {
			t.Errorf("%s: another work is complete, too", name)
		}
	}
	if text := NewCompletion(&workv1.ManifestWork{}).Encode(); text != "" {
		t.Errorf("nothing is complete: %q", text)
	}
	for _, text := range []string{"", "?", "bm8="} {
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fleet.AnnotationCompletion: text}}}
		if c := CompletionOf(amw, ""); c != nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
}
