package cloudevents

import "testing"

// CE-01: the type of an event names kind, subresource and action; groups have dots.
func TestParseType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Type{
		"io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request": {ManifestBundles, Spec, Create},
		"cluster.open-cluster-management.io.v1.managedclusters.status.update_request":   {ManagedClusters, Status, Update},
		"coordination.k8s.io.v1.leases.spec.resync_request":                             {Leases, Spec, Resync},
	} {
		got, err := ParseType(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "v1.leases.spec.resync_request", "a.v1.leases.spec.dance", "a.v1.leases.scale.resync_request",
		".v1.leases.spec.resync_request", Heartbeat} {
		if got, err := ParseType(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
