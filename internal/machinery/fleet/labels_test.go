package fleet

import "testing"

// What means something to controllers is in the domains of the API, and only there.
func TestIsReservedLabel(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		LabelAddOnName: true, LabelManifestWorkReplicaSet: true, LabelWorkPlacement: true, "x.capstan.io/a": true,
		"team": false, "open-cluster-management.io": false, "capstan.io": false, "example.com/open-cluster-management.io": false,
		"not-open-cluster-management.io/a": false, "mycapstan.io/a": false, "capstan.io.example.com/a": false,
	} {
		if got := IsReservedLabel(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
}
