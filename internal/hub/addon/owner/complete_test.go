package owner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
)

func entry(annotations map[string]string) *addonv1beta1.ClusterManagementAddOn {
	return &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "now", Annotations: annotations}}
}

// AM-02: whatever version wrote the reference, there is one, and it is to the present ClusterManagementAddOn.
func TestOwner(t *testing.T) {
	t.Parallel()
	reference := func(version, kind string, uid types.UID) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "addon.open-cluster-management.io/" + version, Kind: kind, Name: "a", UID: uid}
	}
	ours := reference("v1beta1", "ClusterManagementAddOn", "now")
	foreign := reference("v1alpha1", "Something", "x")
	for name, test := range map[string]struct{ before, after []metav1.OwnerReference }{
		"none":    {nil, []metav1.OwnerReference{ours}},
		"already": {[]metav1.OwnerReference{ours}, []metav1.OwnerReference{ours}},
		"another version": {
			[]metav1.OwnerReference{reference("v1alpha1", "ClusterManagementAddOn", "now")},
			[]metav1.OwnerReference{reference("v1alpha1", "ClusterManagementAddOn", "now")},
		},
		"one before": {[]metav1.OwnerReference{reference("v1alpha1", "ClusterManagementAddOn", "then"), foreign},
			[]metav1.OwnerReference{foreign, ours}},
		"something else": {[]metav1.OwnerReference{foreign}, []metav1.OwnerReference{foreign, ours}},
	} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a", OwnerReferences: test.before}}
		Complete(addOn, entry(nil), nil)
		if diff := cmp.Diff(test.after, addOn.OwnerReferences); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// AM-03, AM-11, A4: annotations come from the cluster, and from the ClusterManagementAddOn.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	const hosting, values = "addon.open-cluster-management.io/hosting-cluster-name", "addon.open-cluster-management.io/values"
	const needs, by, from = "capstan.io/depends-on", "capstan.io/installed-by", "capstan.io/annotations-from-cluster"
	const timeout, byDefault = "capstan.io/pre-delete-timeout", "capstan.io/default-pre-delete-timeout"
	type texts = map[string]string
	for name, test := range map[string]struct{ before, cluster, entry, after texts }{
		"nothing": {nil, nil, nil, nil},
		"copied":  {nil, texts{hosting: "h", "other": "x"}, texts{needs: "b", "other": "y"}, texts{hosting: "h", needs: "b", from: hosting}},
		"in sync": {texts{hosting: "h", from: hosting, values: "own"}, texts{hosting: "i"}, nil,
			texts{hosting: "i", from: hosting, values: "own"}},
		"no longer": {texts{hosting: "h", needs: "b", from: hosting + "," + values, values: "v"}, texts{values: "v"}, nil,
			texts{values: "v", from: values}},
		"time limit":           {texts{timeout: "1h", byDefault: "5m"}, nil, texts{timeout: "1m"}, texts{timeout: "1h", byDefault: "1m"}},
		"time limit no longer": {texts{timeout: "1h", byDefault: "5m"}, nil, nil, texts{timeout: "1h"}},
		"by hand":              {texts{hosting: "own"}, texts{hosting: "h"}, nil, texts{hosting: "own"}},
		"by strategy": {
			texts{hosting: "own", by: "install-strategy"}, texts{hosting: "h", values: "v"}, nil,
			texts{hosting: "h", values: "v", by: "install-strategy", from: hosting + "," + values},
		},
	} {
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: test.before}}
		Complete(addOn, entry(test.entry), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: test.cluster}})
		if diff := cmp.Diff(test.after, addOn.Annotations); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
