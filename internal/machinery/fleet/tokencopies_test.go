package fleet_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// MS-07: a Secret is the copy of a token by its label and the ClusterProfile that owns it, whose name says which cluster it is of.
func TestTokenCopyCluster(t *testing.T) {
	t.Parallel()
	if fleet.TokenCopyName("prod", "eu-ci") != fleet.TokenCopyName("prod-eu", "ci") {
		t.Fatal("the copies for prod/eu-ci and prod-eu/ci have not the same name")
	}
	const group = "multicluster.x-k8s.io/v1alpha1"
	for name, test := range map[string]struct {
		from                      string
		apiVersion, kind, profile string
		want                      string
	}{
		"of one cluster":        {"prod-eu-ci", group, "ClusterProfile", "prod", "prod"},
		"of the other":          {"prod-eu-ci", group, "ClusterProfile", "prod-eu", "prod-eu"},
		"in a later version":    {"prod-eu-ci", "multicluster.x-k8s.io/v1", "ClusterProfile", "prod", "prod"},
		"another name":          {"prod-eu-ci", group, "ClusterProfile", "test", ""},
		"the start of a name":   {"prod-eu-ci", group, "ClusterProfile", "pro", ""},
		"copied from elsewhere": {"test-ci", group, "ClusterProfile", "prod", ""},
		"another group":         {"prod-eu-ci", "v1", "ClusterProfile", "prod", ""},
		"another kind":          {"prod-eu-ci", group, "PlacementDecision", "prod", ""},
	} {
		secret := &metav1.ObjectMeta{Name: "prod-eu-ci", Labels: map[string]string{fleet.LabelSyncedFrom: test.from},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: test.apiVersion, Kind: test.kind, Name: test.profile}}}
		if got := fleet.TokenCopyCluster(secret); got != test.want {
			t.Errorf("%s: it is of cluster %q, want %q", name, got, test.want)
		}
	}
}
