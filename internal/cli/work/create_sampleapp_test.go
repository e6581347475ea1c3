package work_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-32
func TestCreateSampleApp(t *testing.T) {
	t.Parallel()
	const argoAPI, sets = "/apis/argoproj.io/v1alpha1", "/apis/argoproj.io/v1alpha1/namespaces/argocd/applicationsets"
	h := clitest.NewHub(t)
	h.Handle("GET "+argoAPI, http.NotFound)
	h.Run(t, "", "create", "sampleapp").Fails(t, "the hub needs Argo CD", "does not serve argoproj.io/v1alpha1")
	h.Handle("GET "+argoAPI, fakehub.JSON(`{"resources":[{"name":"applicationsets","kind":"ApplicationSet","namespaced":true}]}`))
	h.Run(t, "", "create", "sampleapp", "--dry-run").Succeeds(t, "kind: ApplicationSet", "name: sampleapp-appset")
	if h.Has(sets + "/sampleapp-appset") {
		t.Error("the dry run created it")
	}
	file := filepath.Join(t.TempDir(), "applied.yaml")
	h.Run(t, "", "create", "sampleapp", "web", "--output-file", file).Succeeds(t, "ApplicationSet web-appset is created in namespace argocd")
	var set struct {
		Spec map[string]any `json:"spec"`
	}
	h.Get(t, sets+"/web-appset", &set)
	spec, err := json.Marshal(set.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"generators":[{"clusterDecisionResource":{"configMapRef":"ocm-placement-generator",` +
		`"labelSelector":{"matchLabels":{"cluster.open-cluster-management.io/placement":"app-placement"}},"requeueAfterSeconds":30}}],` +
		`"template":{"metadata":{"annotations":{"apps.open-cluster-management.io/ocm-managed-cluster":"{{clusterName}}",` +
		`"argocd.argoproj.io/skip-reconcile":"true"},"labels":{"apps.open-cluster-management.io/pull-to-ocm-managed-cluster":"true"},` +
		`"name":"web-{{clusterName}}"},"spec":{"destination":{"namespace":"web","server":"https://kubernetes.default.svc"},"project":"default",` +
		`"source":{"path":"guestbook","repoURL":"https://github.com/argoproj/argocd-example-apps.git","targetRevision":"HEAD"},` +
		`"syncPolicy":{"automated":{"prune":true},"syncOptions":["CreateNamespace=true"]}}}}`
	if string(spec) != want {
		t.Errorf("spec\n%s, want\n%s", spec, want)
	}
	if written, err := os.ReadFile(file); err != nil || !strings.Contains(string(written), "name: web-appset") {
		t.Errorf("%s, %v", written, err)
	}
	h.Run(t, "", "create", "sampleapp", "web").Succeeds(t, "web-appset") // once more
	h.Follow(t, h.Run(t, "", "create", "sampleapp", "--help"), "create placement app-placement --namespace argocd").Succeeds(t)
	h.Handle("PATCH "+sets+"/lost-appset", fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "argocd" not found`))
	h.Run(t, "", "create", "sampleapp", "lost").Fails(t, "the hub has no namespace argocd: install Argo CD there")
	h.Run(t, "", "create", "sampleapp", "Web").Fails(t, `NAME: "Web"`)
	h.Run(t, "", "create", "sampleapp", "web", "--output-file", "/none/x").Fails(t, "--output-file: /none/x: there is no folder")
}
