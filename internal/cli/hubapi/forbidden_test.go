package hubapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/fakehub"
	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
)

// CA-04: what is forbidden is named as what it is: most often a missing right, but not always.
func TestForbidden(t *testing.T) {
	t.Parallel()
	const right, notRight = "ask an administrator", "No right is missing"
	for name, test := range map[string]struct {
		message string
		cause   metav1.CauseType
		says    []string
		right   bool // whether a right may be missing
	}{
		"a right": {`manifestworks.work.open-cluster-management.io is forbidden: User "jane" cannot create resource "manifestworks" in API group ` +
			`"work.open-cluster-management.io" in the namespace "c1"`, "", []string{"lacks this permission", right}, true},
		"a right to grant": {`clusterroles "x" is forbidden: user "jane" (groups=["dev"]) is attempting to grant RBAC permissions not currently held:`,
			"", []string{"lacks this permission", right}, true},
		"a right that admission asks for": {`managedclusters.register.open-cluster-management.io/accept "c1" is forbidden: user "jane" cannot update ` +
			`the HubAcceptsClient field: no`, "", []string{"lacks this permission", right}, true},
		"a right that a webhook asks for": {`admission webhook "m.o.io" denied the request: user "jane" cannot update the HubAcceptsClient field`,
			"", []string{"lacks this permission", right}, true},
		"no words": {"no", "", []string{"refuses it for the reason above", right}, true},
		"a namespace that goes": {`manifestworks "web" is forbidden: unable to create new content in namespace c1 because it is being terminated`,
			corev1.NamespaceTerminatingCause, []string{notRight, "is being deleted", "kubectl get namespace c1 -o yaml"}, false},
		"a namespace that goes, without the cause": {`manifestworks "web" is forbidden: unable to create new content in namespace c1 because it is ` +
			`being terminated`, "", []string{notRight, "is being deleted"}, false},
		"the cause alone": {"later", corev1.NamespaceTerminatingCause, []string{notRight, "kubectl get namespace NAME"}, false},
		"acceptance in a namespace that goes": {`managedclusters "c1" is forbidden: the namespace "c1" of the cluster is being deleted: accept the ` +
			`cluster again once the namespace is gone`, "", []string{notRight, "kubectl get namespace c1 "}, false},
		"a cluster that takes no works": {`manifestworks "web" is forbidden: cluster "c1" is denied and gets nothing new: accept it first`,
			"ClusterTakesNoWorks", []string{notRight, "capstan get clusters"}, false},
		"a quota": {`pods "p" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3`, "",
			[]string{notRight, "ResourceQuota", "kubectl describe resourcequotas"}, false},
		"a quota that asks for limits": {`pods "p" is forbidden: failed quota: small: must specify limits.cpu for: web`, "",
			[]string{notRight, "ResourceQuota"}, false},
		"a quota that is not known yet": {`pods "p" is forbidden: status unknown for quota: small, resources: pods`, "",
			[]string{notRight, "ResourceQuota"}, false},
		"pod security": {`pods "p" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false`, "",
			[]string{notRight, "Pod Security Standard"}, false},
		"a webhook": {`admission webhook "names.example.com" denied the request: no name begins with x`, "",
			[]string{notRight, "admission webhook names.example.com"}, false},
		"a policy": {`managedclusters "x" is forbidden: ValidatingAdmissionPolicy 'names' with binding 'all' denied request: no name begins with x`,
			"", []string{notRight, "ValidatingAdmissionPolicy names"}, false},
		"admission": {`pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2`, "", []string{"for the reason above"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := fakehub.New(t)
			fake.Handle("GET "+clustersPath, refuse(t, test.message, test.cause))
			_, err := managedclusters.List(t.Context(), fake.Client(t), "")
			mention(t, err, append(test.says, test.message)...)
			if strings.Contains(err.Error(), right) == strings.Contains(err.Error(), notRight) {
				t.Errorf("it is about rights, and is not: %v", err)
			}
			if !apierrors.IsForbidden(err) || hubapi.MayLackRight(err) != test.right {
				t.Errorf("may lack a right: %t, of %v", hubapi.MayLackRight(err), err)
			}
		})
	}
	if hubapi.MayLackRight(apierrors.NewUnauthorized(`User "jane" cannot`)) {
		t.Error("who is not known lacks no right")
	}
}

// refuse answers that something is forbidden.
func refuse(t *testing.T, message string, cause metav1.CauseType) http.HandlerFunc {
	t.Helper()
	status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: message}
	if cause != "" {
		status.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: cause}}}
	}
	content, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(content)
	}
}
