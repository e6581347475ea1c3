package apply

import "testing"

// CM-19, KL-23: only the CRDs of a newer release stay as they are.
func TestNewer(t *testing.T) {
	t.Parallel()
	for release, want := range map[string]bool{"": false, "devel": false, "v1.3.1": false, "1.2.9": false, "v1.10.0": true, "2.0.0": true} {
		if got := newer(release, "1.3.1"); got != want {
			t.Errorf("%s: %t", release, got)
		}
	}
}
