package dependencies

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// on is an add-on on the cluster.
func on(name, needs string, available metav1.ConditionStatus) addonv1beta1.ManagedClusterAddOn {
	addOn := addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: name,
		Annotations: map[string]string{fleet.AnnotationDependsOn: needs}}}
	if available != "" {
		addOn.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionAvailable, Status: available}}
	}
	return addOn
}

func going(addOn addonv1beta1.ManagedClusterAddOn) addonv1beta1.ManagedClusterAddOn {
	now := metav1.Now()
	addOn.DeletionTimestamp = &now
	return addOn
}

// A4.
func TestOf(t *testing.T) {
	t.Parallel()
	a, b := on("a", " c,b ,,c, a", ""), on("a", "d", "")
	if got := Of(&a, &b); !slices.Equal(got, []string{"b", "c", "d"}) {
		t.Errorf("%q", got)
	}
	none := on("a", "", "")
	if got := Of(&none); len(got) != 0 {
		t.Errorf("%q of none", got)
	}
}

// A4: an add-on waits until all that it needs are available, and are there to stay.
func TestMissing(t *testing.T) {
	t.Parallel()
	cluster := []addonv1beta1.ManagedClusterAddOn{
		on("up", "", metav1.ConditionTrue), on("down", "", metav1.ConditionFalse), on("new", "", ""),
		going(on("going", "", metav1.ConditionTrue)),
	}
	if got := Missing("self", []string{"absent", "down", "going", "new", "up"}, cluster); !slices.Equal(got,
		[]string{"absent", "down", "going", "new"}) {
		t.Errorf("%q", got)
	}
	if got := Missing("self", []string{"up"}, cluster); len(got) != 0 {
		t.Errorf("%q", got)
	}
	cycle := []addonv1beta1.ManagedClusterAddOn{on("a", "b", ""), on("b", "c", ""), on("c", "a", ""), on("d", "a", "")}
	for name, want := range map[string][]string{"a": nil, "b": nil, "d": {"a"}} {
		if got := Missing(name, needsOf(cycle)[name], cycle); !slices.Equal(got, want) {
			t.Errorf("%s waits for %q, want %q", name, got, want)
		}
	}
}

// A4: an add-on stays until those that need it are gone, whether they are being removed or not; a cycle holds up nobody.
func TestDependents(t *testing.T) {
	t.Parallel()
	cluster := []addonv1beta1.ManagedClusterAddOn{
		on("base", "", ""), going(on("z", "base,x", "")), on("y", "base", ""), on("x", "y", ""), on("left", "right", ""), on("right", "left", ""),
	}
	for name, want := range map[string][]string{"base": {"y", "z"}, "y": {"x"}, "x": {"z"}, "z": nil, "left": nil, "right": nil} {
		if got := Dependents(name, cluster); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A4.
func TestValidate(t *testing.T) {
	t.Parallel()
	path := field.NewPath("metadata", "annotations").Key(fleet.AnnotationDependsOn)
	for annotation, want := range map[string]string{
		"": "", "one": "", "one, two": "",
		"one,self": "cannot wait for itself", "One": `"One" is not the name`, "one,,two": `"" is not the name`,
	} {
		errs := Validate(path, "self", annotation)
		switch {
		case want == "" && len(errs) > 0:
			t.Errorf("%q: %v", annotation, errs)
		case want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want) ||
			!strings.Contains(errs[0].Error(), "capstan.io/depends-on")):
			t.Errorf("%q: %v, want %q", annotation, errs, want)
		}
	}
}
