package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
)

// WK-36: the lines of the log about a work have its annotations, and cannot be taken for those about another.
func TestLoggerOfAWork(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	work := &workv1.ManifestWork{}
	work.Namespace, work.Name = "cluster1", "web"
	work.Annotations = map[string]string{
		"logging.open-cluster-management.io/op-id": "deploy-42", "logging.open-cluster-management.io/name": "forged", "other/op-id": "not me",
	}
	c := &Controller{hub: fake.NewClientBuilder().WithScheme(scheme).WithObjects(work).Build()}
	var lines []string
	loggerFor := c.loggerFor(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
	loggerFor(&reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "web"}}).Info("applied")
	loggerFor(&reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "cluster1", Name: "gone"}}).Info("gone")
	loggerFor(nil).Info("started")
	for i, want := range []string{
		`"op-id"="deploy-42" "controller"="work-manifestwork-apply" "namespace"="cluster1" "name"="web"`,
		`"controller"="work-manifestwork-apply" "namespace"="cluster1" "name"="gone"`,
		`"controller"="work-manifestwork-apply"`,
	} {
		if !strings.HasSuffix(lines[i], want) || strings.Contains(lines[i], "not me") {
			t.Errorf("line %q, want it to end in %s", lines[i], want)
		}
	}
}

// WK-36: annotations may be large, and the log has many lines.
func TestLoggedAnnotationsAreBounded(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{}
	for i := range 2 * loggedAnnotations {
		annotations[fmt.Sprintf("logging.open-cluster-management.io/key-%02d", i)] = strings.Repeat("é", loggedBytes)
	}
	want := make([]any, 0, 2*loggedAnnotations)
	for i := range loggedAnnotations {
		want = append(want, fmt.Sprintf("key-%02d", i), strings.Repeat("é", loggedBytes/2)+"…")
	}
	if got := loggedOf(annotations); !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}
