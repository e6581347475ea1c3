package template

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/addon/addontest"
)

// AM-30, and A5: the entry of the catalogue goes before what is installed of it.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	entry := func(name string, configs ...addonv1beta1.AddOnConfig) *addonv1beta1.ClusterManagementAddOn {
		return &addonv1beta1.ClusterManagementAddOn{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: addonv1beta1.ClusterManagementAddOnSpec{DefaultConfigs: configs}}
	}
	installed := func(name string, status addonv1beta1.ManagedClusterAddOnStatus) *addonv1beta1.ManagedClusterAddOn {
		return &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "cluster1"}, Status: status}
	}
	deployment := addonv1beta1.ConfigGroupResource{Group: "addon.open-cluster-management.io", Resource: "addondeploymentconfigs"}
	withTemplate := addonv1beta1.ManagedClusterAddOnStatus{ConfigReferences: []addonv1beta1.ConfigReference{{ConfigGroupResource: templateType()}}}
	objects := []client.Object{
		entry("default", addonv1beta1.AddOnConfig{ConfigGroupResource: deployment}, addonv1beta1.AddOnConfig{ConfigGroupResource: templateType(), ConfigReferent: addonv1beta1.ConfigReferent{Name: "hello-v1"}}),
		entry("supported", addonv1beta1.AddOnConfig{ConfigGroupResource: templateType(), ConfigReferent: addonv1beta1.ConfigReferent{Name: addonv1beta1.ReservedNoDefaultConfigName}}),
		entry("code", addonv1beta1.AddOnConfig{ConfigGroupResource: deployment}),
		entry("not-any-more"), installed("not-any-more", withTemplate),
		installed("left", withTemplate),
		installed("left-supported", addonv1beta1.ManagedClusterAddOnStatus{SupportedConfigs: []addonv1beta1.ConfigGroupResource{deployment, templateType()}}),
		installed("left-code", addonv1beta1.ManagedClusterAddOnStatus{SupportedConfigs: []addonv1beta1.ConfigGroupResource{deployment}}),
	}
	index := indexes{}
	if err := IndexAddOns(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(addontest.Scheme()).WithObjects(objects...)
	for field, extract := range index {
		builder.WithIndex(&addonv1beta1.ManagedClusterAddOn{}, field, extract)
	}
	c := addontest.With(builder)
	for name, want := range map[string]bool{
		"default": true, "supported": true, "left": true, "left-supported": true,
		"code": false, "not-any-more": false, "left-code": false, "nobody": false,
	} {
		agent, err := NewCatalogue(c, c).Agent(t.Context(), name)
		if err != nil || (agent != nil) != want {
			t.Errorf("%s: agent %v, error %v, want one: %t", name, agent, err, want)
		}
		if agent != nil && agent.Options().Name != name {
			t.Errorf("%s: the agent is %s", name, agent.Options().Name)
		}
	}
}

// indexes are those that a cache would be asked for.
type indexes map[string]client.IndexerFunc

func (i indexes) IndexField(_ context.Context, _ client.Object, field string, extract client.IndexerFunc) error {
	i[field] = extract
	return nil
}
