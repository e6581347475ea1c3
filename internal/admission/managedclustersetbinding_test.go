package admission_test

import (
	"context"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/admission"
)

// WH-08, WH-09
func TestManagedClusterSetBinding(t *testing.T) {
	t.Parallel()
	const bind = "create managedclustersets/bind.cluster.open-cluster-management.io /prod"
	binding := func(name, set string) *clusterv1beta2.ManagedClusterSetBinding {
		return &clusterv1beta2.ManagedClusterSetBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
			Spec:       clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: set},
		}
	}
	for _, test := range []struct {
		name         string
		binding, old *clusterv1beta2.ManagedClusterSetBinding
		allowed      []string
		reviewed     []string
		code         int
		texts        []string
	}{
		{name: "create", binding: binding("prod", "prod"), allowed: []string{bind}, reviewed: []string{bind}},
		{name: "create without permission", binding: binding("prod", "prod"), reviewed: []string{bind}, code: 403,
			texts: []string{`user "ann" is not allowed to bind cluster set "prod"`, "managedclustersets/bind"}},
		{name: "create with another name", binding: binding("mine", "prod"), allowed: []string{bind}, code: 400,
			texts: []string{"must have the same name as the target ManagedClusterSet", "spec.clusterSet", `"prod"`}},
		{name: "update", binding: binding("prod", "prod"), old: binding("prod", "prod")},
		{name: "update to another set", binding: binding("prod", "test"), old: binding("prod", "prod"), code: 400,
			texts: []string{"must have the same name as the target ManagedClusterSet"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			authorizer := fakeAuthorizer{allowed: test.allowed}
			err := admission.ValidateManagedClusterSetBinding(context.Background(), test.binding, test.old, authorizer.sender())
			checkStatus(t, err, test.code, test.texts...)
			if !slices.Equal(authorizer.reviewed, test.reviewed) {
				t.Errorf("asked for %q, want %q", authorizer.reviewed, test.reviewed)
			}
		})
	}
}
