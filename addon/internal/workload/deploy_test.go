package workload

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// AF-12, AF-14: the work of an add-on, and no write when nothing changes.
func TestDeploy(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("b", 10), configMap("a", 10), yamlObject(`{apiVersion: v1, kind: Namespace, metadata: {name: ns}}`))
	h.Installation.AddOn.Status.ConfigReferences = []addonv1beta1.ConfigReference{{
		ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "g.io", Resource: "things"},
		DesiredConfig:       &addonv1beta1.ConfigSpecHash{ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "n", Name: "x"}, SpecHash: "1"},
	}}
	h.reconcile()
	h.expectWrites("create cluster1/addon-hello-deploy-0")
	h.expectObjects("cluster1", "addon-hello-deploy-0", "Namespace ns", "ConfigMap a", "ConfigMap b")
	h.expectCondition("ManifestApplied", metav1.ConditionFalse, "AddonManifestAppliedFailed",
		"agent of cluster cluster1 has not applied ManifestWork addon-hello-deploy-0 yet")
	w := h.work("cluster1", "addon-hello-deploy-0")
	if !maps.Equal(w.Labels, map[string]string{"open-cluster-management.io/addon-name": "hello"}) {
		t.Errorf("labels %v", w.Labels)
	}
	if got := w.Annotations[fleet.AnnotationConfigSpecHash]; got != `{"things.g.io/n/x":"1"}` {
		t.Errorf("annotation %s", got)
	}
	if len(w.OwnerReferences) != 1 || w.OwnerReferences[0].UID != "addon-uid" || w.OwnerReferences[0].Kind != "ManagedClusterAddOn" {
		t.Errorf("owners %+v", w.OwnerReferences)
	}
	h.agents(nil)
	for range 2 {
		h.reconcile()
		h.expectWrites()
		h.expectFinalizers()
		h.expectCondition("ManifestApplied", metav1.ConditionTrue, "AddonManifestApplied", "manifests of addon are applied successfully")
	}
}

// AF-14, AM-09: an add-on of which no cluster is to have anything says so, and with which configurations.
func TestNothingToApply(t *testing.T) {
	t.Parallel()
	there := annotated(configMap("a", 1), at, "hosting")
	const applied, nothing = "AddonManifestApplied", "AddonNothingToApply"
	for name, test := range map[string]struct {
		hosted bool
		first  []client.Object // what it has before; nil for nothing
		then   []client.Object
		reason string
	}{
		"nothing":                   {false, nil, nil, nothing},
		"a hook":                    {false, nil, []client.Object{hookJob("bye")}, nothing},
		"something":                 {false, nil, []client.Object{there}, applied},
		"something no more":         {false, []client.Object{there}, nil, nothing},
		"nothing, hosted":           {true, nil, nil, nothing},
		"something there, hosted":   {true, nil, []client.Object{there}, applied},
		"something nowhere, hosted": {true, nil, []client.Object{annotated(configMap("a", 1), at, "none")}, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, test.first...)
			if test.hosted {
				h.hosted()
			}
			h.Installation.AddOn.Status.ConfigReferences = []addonv1beta1.ConfigReference{{
				ConfigGroupResource: addonv1beta1.ConfigGroupResource{Group: "g.io", Resource: "things"},
				DesiredConfig: &addonv1beta1.ConfigSpecHash{
					ConfigReferent: addonv1beta1.ConfigReferent{Namespace: "n", Name: "x"}, SpecHash: "1",
				},
			}}
			h.reconcile()
			h.agents(nil)
			h.Workload.Objects = test.then
			h.reconcile()
			h.agents(nil)
			h.reconcile()
			h.expectCondition("ManifestApplied", metav1.ConditionTrue, test.reason)
			got := meta.FindStatusCondition(h.Installation.AddOn.Status.Conditions, "ManifestApplied")
			if says := strings.HasSuffix(got.Message, `with the configurations {"things.g.io/n/x":"1"}`); says != (test.reason == nothing) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// An add-on that cannot be rendered stays as it is.
func TestUnrendered(t *testing.T) {
	t.Parallel()
	h := newHub(t, configMap("a", 10))
	h.reconcile()
	h.agents(nil)
	h.Workload = nil
	h.reconcile()
	h.expectWrites()
	h.Unrendered = errors.New("no such chart")
	h.reconcile()
	h.expectWrites()
	h.expectCondition("ManifestApplied", metav1.ConditionFalse, "ManifestWorkApplyFailed", "no such chart")
}
