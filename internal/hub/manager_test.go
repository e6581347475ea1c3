package hub

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/hub/work/delivery"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// A fleet has very many works of sets. Of these the cache keeps no reports on single objects, unless a transport compares statuses; of the
// works of add-ons, whose health is read there, it does.
func TestCachedWorks(t *testing.T) {
	t.Parallel()
	ofSet := map[string]string{fleet.LabelManifestWorkReplicaSet: "n.s"}
	for name, test := range map[string]struct {
		options Options
		labels  map[string]string
		kept    bool
	}{
		"of a set":                     {labels: ofSet},
		"of a set, by a transport":     {options: Options{WorkTransport: &delivery.MQTT{}}, labels: ofSet, kept: true},
		"of an add-on":                 {labels: map[string]string{fleet.LabelAddOnName: "a"}, kept: true},
		"of a user":                    {kept: true},
		"without controllers of works": {options: Options{Groups: []string{GroupRegistration}}, labels: ofSet, kept: true},
	} {
		options := ManagerOptions(test.options)
		transform := options.Cache.DefaultTransform
		for kind, by := range options.Cache.ByObject {
			if _, ofWorks := kind.(*workv1.ManifestWork); ofWorks {
				transform = by.Transform
			}
		}
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Labels: test.labels, ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
		work.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionApplied}}
		work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{}}
		if _, err := transform(work); err != nil {
			t.Fatal(err)
		}
		if kept := len(work.Status.ResourceStatus.Manifests) > 0; kept != test.kept {
			t.Errorf("%s: reports are kept: %t", name, kept)
		}
		if len(work.Status.Conditions) == 0 || work.ManagedFields != nil {
			t.Errorf("%s: %+v", name, work)
		}
	}
}
