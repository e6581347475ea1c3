package celselector

import "testing"

// Whatever the expression, compiling and evaluating it does not crash, and costs no more than it may.
func FuzzMatches(f *testing.F) {
	for _, expression := range []string{
		`managedCluster.metadata.labels["region"] == "eu"`, `managedCluster.scores("usage").filter(s, s.name == "cpu").all(s, s.value > 50)`,
		`semver(managedCluster.status.version.kubernetes).isGreaterThan(semver("1.30.0"))`,
		`managedCluster.metadata.annotations["facts"].parseJSON().racks.size() == 2`,
		`[1,2,3,4].all(a, [1,2,3,4].all(b, [1,2,3,4].all(c, [1,2,3,4].exists(d, d == a + b + c))))`,
	} {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		selector, err := Compile([]string{expression})
		if err != nil {
			return
		}
		costs := unlimited()
		if err := selector.Matches(NewCluster(cluster(), scores, costs)); err != nil && err.Error() == "" {
			t.Errorf("%q does not match, without a reason", expression)
		}
		if costs.Spent() < 0 {
			t.Errorf("%q costs %d", expression, costs.Spent())
		}
	})
}
