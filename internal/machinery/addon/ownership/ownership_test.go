package ownership_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/ownership"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AF-12: works are known by labels and name.
func TestOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"addon-a-deploy-0": "c1/a", "addon-a-deploy-12": "c1/a", "addon-a-pre-delete": "c1/a", "addon-a-deploy-hosting-c1-3": "c1/a",
		"addon-a-pre-delete-hosting-c1": "c1/a",
		"addon-a-deploy-01":             "", "addon-a-deploy--1": "", "addon-a-deploy-x": "", "addon-b-deploy-0": "",
		"addon-a-deploy-hosting-c2-3": "",
		"mine":                        "", "": "",
	} {
		w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name,
			Labels: map[string]string{fleet.LabelAddOnName: "a"}}}
		key, ok := ownership.Of(w)
		if ok != (want != "") || ok && key.String() != want {
			t.Errorf("%s: %v %t", name, key, ok)
		}
		w.Labels = nil
		if _, ok := ownership.Of(w); ok {
			t.Errorf("%s without the label", name)
		}
	}
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "host", Name: "addon-a-deploy-hosting-c1-0",
		Labels: map[string]string{fleet.LabelAddOnName: "a", fleet.LabelAddOnNamespace: "c1"}}}
	if key, ok := ownership.Of(w); !ok || key != (types.NamespacedName{Namespace: "c1", Name: "a"}) {
		t.Errorf("%v %t", key, ok)
	}
	w.Name = "addon-a-deploy-0"
	if key, ok := ownership.Of(w); ok {
		t.Errorf("a work of another cluster is taken for one of %v", key)
	}
}

// AF-12: "labels of a ManifestWorkReplicaSet make its work one of an add-on": what a controller keeps for another is no add-on's,
// whatever it is called. Managers of the add-on framework name the add-on as the controller, in whichever version; one that is there again
// has another UID.
func TestControlledWorks(t *testing.T) {
	t.Parallel()
	controlledBy := func(apiVersion, kind, name string) []metav1.OwnerReference {
		isController := true
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: "other", Controller: &isController}}
	}
	const number = "6194125052"
	ofSet := map[string]string{fleet.LabelAddOnName: "a", fleet.LabelManifestWorkReplicaSet: "ns.addon-a-deploy"}
	hostedOfSet := map[string]string{fleet.LabelAddOnName: "a", fleet.LabelAddOnNamespace: "c2", fleet.LabelManifestWorkReplicaSet: "ns.s"}
	ofAddOn := map[string]string{fleet.LabelAddOnName: "a"}
	for name, test := range map[string]struct {
		meta metav1.ObjectMeta
		want bool
	}{
		"of a set":                   {metav1.ObjectMeta{Name: "addon-a-deploy-" + number, Labels: ofSet}, false},
		"of a set, hosted":           {metav1.ObjectMeta{Name: "addon-a-deploy-hosting-c2-" + number, Labels: hostedOfSet}, false},
		"of no set":                  {metav1.ObjectMeta{Name: "addon-a-deploy-" + number, Labels: ofAddOn}, true},
		"controlled by another kind": {metav1.ObjectMeta{OwnerReferences: controlledBy("argoproj.io/v1alpha1", "Application", "a")}, false},
		"controlled by another addon": {metav1.ObjectMeta{OwnerReferences: controlledBy("addon.open-cluster-management.io/v1beta1",
			ownership.Kind, "b")}, false},
		"of the framework": {metav1.ObjectMeta{OwnerReferences: controlledBy("addon.open-cluster-management.io/v1alpha1",
			ownership.Kind, "a")}, true},
		"lost its owner":        {metav1.ObjectMeta{}, true},
		"owned, not controlled": {metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "ConfigMap", Name: "b"}}}, true},
	} {
		w := &workv1.ManifestWork{ObjectMeta: test.meta}
		w.Namespace = "c1"
		if w.Name == "" {
			w.Name, w.Labels = "addon-a-deploy-0", ofAddOn
		}
		if key, ok := ownership.Of(w); ok != test.want {
			t.Errorf("%s: %v %t", name, key, ok)
		}
	}
}
