package works

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// Gap W4: a manifest of nearly 1 MiB, and hundreds of manifests in one work, are applied, and go again; more is refused with the
// size and the limit.
func TestLargeWorksAreApplied(t *testing.T) {
	t.Parallel()
	const name = "large"
	env.Join(t, framework.Hub, framework.Managed, name)
	h, m := framework.Hub.Client(t), framework.Managed.Client(t)
	ns := framework.Namespace(t, m, name)
	big := framework.Work(name, "big", framework.ConfigMap(ns, "big", strings.Repeat("x", 1000<<10)))
	many := bulk(name, ns, 1, 500)[0]
	framework.Create(t, h, big, many)
	awaitConfigMaps(t, m, ns, 500)
	framework.AwaitCondition(t, h, big, "Applied", metav1.ConditionTrue)
	awaitApplied(t, h, name, 2)
	framework.AwaitConfigMap(t, m, ns, "big", strings.Repeat("x", 1000<<10))
	err := h.Create(t.Context(), framework.Work(name, "too-big", framework.ConfigMap(ns, "too-big", strings.Repeat("x", 1<<20))))
	if err == nil || !strings.Contains(err.Error(), "the limit is 1048576 bytes: spread them over several ManifestWorks") {
		t.Errorf("a manifest of more than 1 MiB: %v", fmt.Sprintf("%.300v", err))
	}
	for _, w := range []client.Object{big, many} {
		if err := h.Delete(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	awaitApplied(t, h, name, 0)
	awaitConfigMaps(t, m, ns, 0)
	framework.AwaitGone(t, m, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "big"}})
}
