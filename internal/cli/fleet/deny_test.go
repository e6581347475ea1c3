package fleet_test

import (
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const rbacPath = "/apis/rbac.authorization.k8s.io/v1"

func deniedRequest(t *testing.T, h clitest.Hub, name string) bool {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	h.Get(t, clitest.RequestsPath+"/"+name, &csr)
	for _, condition := range csr.Status.Conditions {
		if condition.Type == certificatesv1.CertificateDenied && condition.Reason == "capstan Deny" {
			return true
		}
	}
	return false
}

// A denial is one patch, and decides on nothing else.
func TestDeny(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "cluster1-x", "cluster1", "a1"))
	h.Run(t, "", "deny", "--clusters", "cluster1").Succeeds(t, "set hubAcceptsClient to false for managed cluster cluster1")
	if patch := h.Requests(http.MethodPatch); len(patch) != 1 || patch[0].Body != `{"spec":{"hubAcceptsClient":false}}` {
		t.Errorf("patched %+v", patch)
	}
	if deniedRequest(t, h, "cluster1-x") {
		t.Error("a request is denied, which nobody asked for")
	}
	h.Run(t, "", "deny", "--clusters", "gone").Fails(t, "gone")
}

// "capstan deny --clusters c --now cuts off a compromised cluster in one command: denial, pending CSRs denied": all that are of the cluster
// or for it, whatever label they carry, and no others.
func TestDenyNow(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "joins", "cluster1", "a1"))
	unlabelled := fakehub.JoinRequest(t, "unlabelled", "cluster1", "a2")
	unlabelled.Labels = nil
	h.PutRequest(t, unlabelled)
	requested := fakehub.JoinRequest(t, "asked-by-it", "cluster2", "a1")
	requested.Spec.Username, requested.Spec.Groups = "system:open-cluster-management:cluster1:a1", []string{"system:open-cluster-management:cluster1"}
	h.PutRequest(t, requested)
	h.PutRequest(t, fakehub.JoinRequest(t, "of-another", "cluster2", "a1"))
	decided := fakehub.JoinRequest(t, "decided", "cluster1", "a3")
	decided.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: "True"}}
	h.PutRequest(t, decided)

	h.Run(t, "", "deny", "--clusters", "cluster1", "--now", "--dry-run").Succeeds(t,
		"would set hubAcceptsClient to false for managed cluster cluster1", "would deny CSR joins")
	if len(h.Requests(http.MethodPatch))+len(h.Requests(http.MethodPut)) > 0 {
		t.Error("a dry run writes")
	}
	cutOff := h.Run(t, "", "deny", "--clusters", "cluster1", "--now")
	cutOff.Succeeds(t, "CSR joins denied", "cluster cluster1 is cut off")
	if patch := h.Requests(http.MethodPatch); len(patch) != 1 ||
		patch[0].Body != `{"metadata":{"labels":{"capstan.io/cut-off":"true"}},"spec":{"hubAcceptsClient":false}}` {
		t.Errorf("patched %+v", patch)
	}
	for name, want := range map[string]bool{"joins": true, "unlabelled": true, "asked-by-it": true, "of-another": false, "decided": false} {
		if got := deniedRequest(t, h, name); got != want {
			t.Errorf("request %s: denied %t", name, got)
		}
	}
	h.DeleteAs(t, cutOff, "delete managedcluster cluster1")
}

// A hub in an existing cluster takes names of requests that a terminal acts on.
func TestDenyNowOfUnprintableName(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "x\x1b[2J", "cluster1", "a1"))
	for _, args := range [][]string{{"--dry-run"}, nil} {
		got := h.Run(t, "", append([]string{"deny", "--clusters", "cluster1", "--now"}, args...)...)
		got.Succeeds(t, `CSR "x\x1b[2J"`)
		if strings.Contains(got.Out+got.ErrOut, "\x1b") {
			t.Errorf("%q", got.Out+got.ErrOut)
		}
	}
}

// A hub that does not take the rights away is not believed to have, nor is the manager of an add-on.
func TestDenyNowSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	const ofAgent = "open-cluster-management:managedcluster:cluster1:work"
	const ofAddOns = "open-cluster-management.io/cluster-name=cluster1,capstan.io/addon-manager"
	object := func(content string) string { return `{"apiVersion":"rbac.authorization.k8s.io/v1",` + content + `}` }
	for left, answer := range map[string]struct{ path, selector, with string }{
		"RoleBinding cluster1/" + ofAgent: {"/namespaces/cluster1/rolebindings/" + ofAgent, "",
			object(`"kind":"RoleBinding","metadata":{"name":"` + ofAgent + `","namespace":"cluster1"}`)},
		"RoleBinding shared/spy": {"/rolebindings", ofAddOns,
			object(`"kind":"RoleBindingList","items":[{"metadata":{"name":"spy","namespace":"shared"}}]`)},
		"ClusterRoleBinding spy": {"/clusterrolebindings", ofAddOns,
			object(`"kind":"ClusterRoleBindingList","items":[{"metadata":{"name":"spy"}}]`)},
	} {
		t.Run(left, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			h.PutClusters(t)
			requested, again := 0, make(chan struct{})
			h.Handle("GET "+rbacPath+answer.path, func(w http.ResponseWriter, r *http.Request) {
				if requested++; requested == 2 {
					close(again)
				}
				if got := r.URL.Query().Get("labelSelector"); got != answer.selector {
					t.Errorf("requested with the selector %q, want %q", got, answer.selector)
				}
				fakehub.JSON(answer.with)(w, r)
			})
			got := clitest.TimesOutAfter(t, clitest.Closed(again), "", "--kubeconfig", h.File, "deny", "--clusters", "cluster1", "--now",
				"--timeout", "1")
			got.Fails(t, "cluster cluster1 is denied, but the hub has not taken away what gives its agent or add-ons rights", left, "controllers")
			if patch := h.Requests(http.MethodPatch); len(patch) != 1 || !strings.Contains(patch[0].Body, "false") {
				t.Errorf("patched %+v", patch)
			}
		})
	}
}

// A cluster that keeps its rights takes no time from the others, and the error names it.
func TestDenyNowWaitsForAllAtTheSameTime(t *testing.T) {
	t.Parallel()
	const left = "open-cluster-management:managedcluster:cluster1:work"
	h := clitest.NewHub(t)
	h.PutClusters(t)
	second, since, over := false, 0, make(chan struct{}) // guarded by the hub, which handles one request at a time
	h.Handle("GET "+rbacPath+"/rolebindings", func(w http.ResponseWriter, r *http.Request) {
		second = second || strings.Contains(r.URL.Query().Get("labelSelector"), "cluster2")
		fakehub.JSON(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBindingList","items":[]}`)(w, r)
	})
	h.Handle("GET "+rbacPath+"/namespaces/cluster1/rolebindings/"+left, func(w http.ResponseWriter, r *http.Request) {
		const enough = 3 // by then, the other cluster's answer has arrived
		if second {
			if since++; since == enough {
				close(over)
			}
		}
		fakehub.JSON(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"`+left+`","namespace":"cluster1"}}`)(w, r)
	})
	got := clitest.TimesOutAfter(t, clitest.Closed(over), "", "--kubeconfig", h.File, "deny", "--clusters", "cluster1,cluster2", "--now",
		"--timeout", "1")
	got.Fails(t, "cluster cluster1 is denied, but", "RoleBinding cluster1/"+left)
	if !strings.Contains(got.Out, "cluster cluster2 is cut off") || strings.Contains(got.ErrOut, "cluster2") {
		t.Errorf("printed %q, and %q", got.Out, got.ErrOut)
	}
}

// Where nothing is known of the rights, the error names the cluster all the same.
func TestDenyNowNamesClustersThatItDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	for _, cluster := range []string{"cluster1", "cluster2"} {
		h.Handle("GET "+rbacPath+"/namespaces/"+cluster+"/rolebindings/open-cluster-management:managedcluster:"+cluster+":work",
			fakehub.Refuse(http.StatusInternalServerError, metav1.StatusReasonInternalError, "no database"))
	}
	h.Run(t, "", "deny", "--clusters", "cluster1,cluster2", "--now").Fails(t,
		"cluster cluster1 is denied, but whether", "cluster cluster2 is denied, but whether", "no database")
}
