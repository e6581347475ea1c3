package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// RG-27 KL-23: an agent with the feature gate ClusterProperty installs the kind, and reports properties as claims: before claims of
// the same name, unless they are not for the hub. One that is too long for the hub does not keep the others from it.
func TestClusterProperty(t *testing.T) {
	t.Parallel()
	const name = "properties"
	env.Join(t, framework.Hub, framework.Managed, name, "--feature-gates=ClusterProperty=true", "--max-custom-cluster-claims=100")
	m := framework.Managed.Client(t) // the kind is there since the agent is
	reported := func(want ...string) {
		t.Helper()
		env.Eventually(t, func(context.Context) error {
			var have []string
			for _, claim := range framework.ManagedCluster(t, name).Status.ClusterClaims {
				if strings.HasSuffix(claim.Name, ".properties.example.com") {
					have = append(have, claim.Name+"="+claim.Value)
				}
			}
			if !slices.Equal(have, want) {
				return fmt.Errorf("have %q, want %q", have, want)
			}
			return nil
		})
	}
	property := func(name, value string) *aboutv1alpha1.ClusterProperty {
		return &aboutv1alpha1.ClusterProperty{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: aboutv1alpha1.ClusterPropertySpec{Value: value}}
	}
	framework.Create(t, m, &clusterv1alpha1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "both.properties.example.com"},
		Spec: clusterv1alpha1.ClusterClaimSpec{Value: "claim"}})
	both, hidden, long := property("both.properties.example.com", "property"), property("hidden.properties.example.com", "secret"),
		property("long.properties.example.com", strings.Repeat("x", 2000))
	hidden.Labels = map[string]string{fleet.LabelSpokeOnly: ""}
	framework.Create(t, m, hidden)
	framework.Create(t, m, both)
	reported("both.properties.example.com=property")
	framework.Create(t, m, long)
	awaitCluster(t, framework.Hub.Client(t), name, fleet.ConditionClaimsReported, metav1.ConditionFalse, fleet.ReasonClaimsInvalid)
	framework.AwaitEvent(t, framework.Hub.Client(t), name, fleet.EventClusterClaimsInvalid)
	reported("both.properties.example.com=property")
	if err := m.Delete(t.Context(), both); err != nil {
		t.Fatal(err)
	}
	reported("both.properties.example.com=claim")
	if err := m.Create(t.Context(), property("none.properties.example.com", "")); !apierrors.IsInvalid(err) {
		t.Errorf("a property without a value is taken: %v", err)
	}
}
