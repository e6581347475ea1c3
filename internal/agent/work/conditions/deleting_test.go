package conditions

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-14: what holds up a deletion is in the condition, with what to do about it, and no longer than a condition can hold.
func TestDeletingSaysWhy(t *testing.T) {
	t.Parallel()
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "prod1", Name: "web"}}
	const usual = "What the work has applied is being deleted from the managed cluster"
	long := strings.Repeat("x", 2000)
	for want, delay := range map[string]*Delay{
		usual: nil,
		usual + ". There is no progress, with 1 object left: services web/web has the finalizers a": {Left: 1,
			Reasons: []string{"services web/web has the finalizers a"}},
		usual + ". There is no progress, with 3 objects left: one; and 2 more. If the cluster runs no garbage collector, that has no end; to wait for no dependents, run: " +
			`kubectl -n prod1 patch manifestwork web --type=merge -p '{"spec":{"deleteOption":null}}'`: {Left: 3, Reasons: []string{"one"},
			Dependents: true},
	} {
		if got := deletingMessage(w, delay); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	if got := deletingMessage(w, &Delay{Left: 9, Reasons: []string{long, long, long}, Dependents: true}); len(got) > 32768 ||
		!strings.Contains(got, "and 6 more") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
