package template

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/addontest"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// AM-30, and A5, R12: the entry of the catalogue goes, or becomes one of something else, before what is installed of it.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	deployment := addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"}
	none := addonv1beta1.ConfigReferent{Name: addonv1beta1.ReservedNoDefaultConfigName}
	entries := map[string][]addonv1beta1.AddOnConfig{
		"default": {{ConfigGroupResource: deployment},
			{ConfigGroupResource: templateType(), ConfigReferent: addonv1beta1.ConfigReferent{Name: "hello-v1"}}},
		"supported": {{ConfigGroupResource: templateType(), ConfigReferent: none}},
		"code":      {{ConfigGroupResource: deployment}},
	}
	refers := addonv1beta1.ManagedClusterAddOnStatus{ConfigReferences: []addonv1beta1.ConfigReference{{ConfigGroupResource: templateType()}}}
	supports := addonv1beta1.ManagedClusterAddOnStatus{SupportedConfigs: []addonv1beta1.ConfigGroupResource{deployment, templateType()}}
	code := addonv1beta1.ManagedClusterAddOnStatus{SupportedConfigs: []addonv1beta1.ConfigGroupResource{deployment}}
	for _, test := range []struct {
		entry   string
		status  addonv1beta1.ManagedClusterAddOnStatus
		leaving bool
		want    bool
	}{
		{"default", addonv1beta1.ManagedClusterAddOnStatus{}, false, true},
		{"default", code, true, true},
		{"supported", addonv1beta1.ManagedClusterAddOnStatus{}, false, true},
		{"code", code, false, false},
		{"code", code, true, false}, // another user has it now
		{"code", supports, false, false},
		{"code", supports, true, true},
		{"gone", refers, false, true},
		{"gone", supports, true, true},
		{"gone", code, true, false},
		{"gone", addonv1beta1.ManagedClusterAddOnStatus{}, true, false},
	} {
		var objects []client.Object
		if configs, found := entries[test.entry]; found {
			objects = append(objects, &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: test.entry},
				Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: configs}})
		}
		c := addontest.Client(objects...)
		addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: test.entry, Namespace: "cluster1"}, Status: test.status}
		if test.leaving {
			addOn.DeletionTimestamp = new(metav1.Now())
		}
		agent, err := NewCatalogue(c, c, &events.FakeRecorder{}).Agent(t.Context(), addOn)
		if err != nil || (agent != nil) != test.want {
			t.Errorf("%+v: agent %v, error %v", test, agent, err)
		}
		if agent != nil && agent.Options().Name != test.entry {
			t.Errorf("%s: the agent is %s", test.entry, agent.Options().Name)
		}
	}
}
