package install_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// With --force, webhooks that do not answer do not keep what they would check: the API server refuses all changes of that.
func TestForcedCleanWithDeadWebhooks(t *testing.T) {
	t.Parallel()
	const (
		manager, work = managersPath + "cluster-manager", "/apis/work.open-cluster-management.io/v1/namespaces/c1/manifestworks/web"
		validating    = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/"
		mutating      = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/"
	)
	createdBy := func(manager string) string {
		return `{"metadata":{"labels":{"open-cluster-management.io/created-by-clustermanager":"` + manager + `"}}}`
	}
	for name, test := range map[string]struct {
		pods  map[string]int // that are ready, by the Deployment of the webhook
		stays bool
	}{
		"none is there":   {},
		"one is not":      {pods: map[string]int{"registration-webhook": 1, "work-webhook": 1}},
		"one has no pods": {pods: map[string]int{"registration-webhook": 3, "work-webhook": 0, "addon-webhook": 3}},
		"all run":         {pods: map[string]int{"registration-webhook": 1, "work-webhook": 1, "addon-webhook": 1}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := withManager(t)
			serve(h, "/apis/work.open-cluster-management.io/v1", "manifestworks ManifestWork")
			serve(h, "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations ValidatingWebhookConfiguration",
				"mutatingwebhookconfigurations MutatingWebhookConfiguration")
			put(t, h, map[string]string{
				manager: "ClusterManager", work: "ManifestWork", validating + "works": "ValidatingWebhookConfiguration",
				mutating + "works": "MutatingWebhookConfiguration", validating + "of-another": "ValidatingWebhookConfiguration",
			}, map[string]string{
				manager:              `{"metadata":{"finalizers":["operator.open-cluster-management.io/cluster-manager-cleanup"]}}`,
				work:                 `{"metadata":{"finalizers":["cluster.open-cluster-management.io/manifest-work-cleanup"]}}`,
				validating + "works": createdBy("cluster-manager"), mutating + "works": createdBy("cluster-manager"),
				validating + "of-another": createdBy("another"),
			})
			for webhook, pods := range test.pods {
				path := deploymentsOf + "open-cluster-management-hub/deployments/cluster-manager-" + webhook
				put(t, h, map[string]string{path: "Deployment"}, map[string]string{path: `{"status":{"availableReplicas":` + strconv.Itoa(pods) + `}}`})
			}
			gone := fakehub.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, "it is gone")
			h.Handle("PATCH "+work, func(w http.ResponseWriter, r *http.Request) {
				dead := !test.stays && (h.HasLocked(validating+"works") || h.HasLocked(mutating+"works"))
				operator := httptest.NewRecorder()
				h.RespondLocked(operator, manager)
				if dead || !strings.Contains(operator.Body.String(), "deletionTimestamp") { // it would make them again
					fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook")(w, r)
					return
				}
				gone(w, r)
			})
			h.Run(t, "", "clean", "--force").Succeeds(t, "cleaned up successfully")
			if h.Has(validating+"works") != test.stays || h.Has(mutating+"works") != test.stays || !h.Has(validating+"of-another") {
				t.Errorf("it leaves %v", strings.Join(h.Paths(), "\n"))
			}
		})
	}
}
