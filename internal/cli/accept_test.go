package cli_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

const csrsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

func (h hub) putRequest(t *testing.T, csr *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	h.Put(t, csrsPath+"/"+csr.Name, csr)
}

func (h hub) approved(t *testing.T, name string) bool {
	t.Helper()
	var csr certificatesv1.CertificateSigningRequest
	h.Get(t, csrsPath+"/"+name, &csr)
	for _, condition := range csr.Status.Conditions {
		if condition.Type == certificatesv1.CertificateApproved && condition.Reason == "capstan Approve" {
			return true
		}
	}
	return false
}

func (h hub) accepted(t *testing.T, name string) bool {
	t.Helper()
	var c clusterv1.ManagedCluster
	h.Get(t, clustersPath+"/"+name, &c)
	return c.Spec.HubAcceptsClient
}

// CA-18: the request of the agent is approved through the subresource, the cluster is accepted by a merge patch.
func TestAccept(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.putRequest(t, fakehub.JoinRequest(t, "cluster1-x", "cluster1", "a1"))
	lookalike := fakehub.JoinRequest(t, "cluster1-evil", "cluster1", "a2")
	lookalike.Spec.Username += "-2"
	h.putRequest(t, lookalike)
	h.putRequest(t, fakehub.JoinRequest(t, "cluster2-x", "cluster2", "a1"))

	h.run(t, "", "accept", "--clusters", "cluster1").succeeds(t,
		"CSR cluster1-x approved", "set hubAcceptsClient to true for managed cluster cluster1", "cluster cluster1 is accepted")
	if !h.approved(t, "cluster1-x") || h.approved(t, "cluster1-evil") || h.approved(t, "cluster2-x") {
		t.Error("the wrong requests are approved")
	}
	if !h.accepted(t, "cluster1") || h.accepted(t, "cluster2") {
		t.Error("the wrong clusters are accepted")
	}
	if put := h.Requests(http.MethodPut); len(put) != 1 || !strings.HasSuffix(put[0].Path, "/cluster1-x/approval") {
		t.Errorf("put %+v", put)
	}
	if patch := h.Requests(http.MethodPatch); len(patch) != 1 || patch[0].Body != `{"spec":{"hubAcceptsClient":true}}` {
		t.Errorf("patched %+v", patch)
	}
	h.run(t, "", "accept", "--clusters", "cluster1").succeeds(t, "set hubAcceptsClient")
}

// CA-18: without a request there is nobody to accept, unless the agent has another way in.
func TestAcceptWithoutRequest(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	lookalike := fakehub.JoinRequest(t, "cluster1-evil", "cluster1", "a2")
	lookalike.Spec.Username = "jane"
	h.putRequest(t, lookalike)
	got := h.run(t, "", "accept", "--clusters", "cluster1,gone")
	got.fails(t, "no csr is approved yet for cluster cluster1", "CSR cluster1-evil is left alone", `"jane"`, "--wait",
		"cluster gone is not known to the hub", "capstan get token")
	if h.accepted(t, "cluster1") {
		t.Error("accepted a cluster without a request")
	}

	joined := cluster("joined", nil, "ManagedClusterJoined")
	joined.Spec.HubAcceptsClient = true
	h.Put(t, clustersPath+"/joined", joined)
	aws := cluster("aws", nil)
	aws.Annotations = map[string]string{"agent.open-cluster-management.io/managed-cluster-arn": "arn:aws:eks:us-west-2:1:cluster/c"}
	h.Put(t, clustersPath+"/aws", aws)
	h.run(t, "", "accept", "--clusters", "joined,aws").succeeds(t, "cluster joined is accepted", "cluster aws is accepted")
}

// CA-18, O16: of several agents that ask to be the same cluster, only the named ones are approved.
func TestAcceptRequesters(t *testing.T) {
	t.Parallel()
	const first, second = "system:open-cluster-management:cluster1:a1", "system:open-cluster-management:cluster1:a11"
	tests := map[string]struct {
		flags  []string
		a1, a2 bool
		fails  []string
	}{
		"not chosen":   {fails: []string{"2 agents ask to be cluster cluster1", first, second, "--requesters", "--skip-approve-check"}},
		"chosen":       {flags: []string{"--requesters", first}, a1: true},
		"only a start": {flags: []string{"--requesters", "system:open-cluster-management:cluster1:"}, fails: []string{"no csr is approved yet", "match whole", first, second}},
		"both":         {flags: []string{"--requesters", first + "," + second}, a1: true, a2: true},
		"unchecked":    {flags: []string{"--skip-approve-check"}, a1: true, a2: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t)
			h.putClusters(t)
			h.putRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
			h.putRequest(t, fakehub.JoinRequest(t, "two", "cluster1", "a11"))
			got := h.run(t, "", append([]string{"accept", "--cluster", "cluster1"}, test.flags...)...)
			if len(test.fails) > 0 {
				got.fails(t, test.fails...)
			} else {
				got.succeeds(t)
			}
			if h.approved(t, "one") != test.a1 || h.approved(t, "two") != test.a2 || h.accepted(t, "cluster1") != (len(test.fails) == 0) {
				t.Errorf("approved %t and %t, accepted %t", h.approved(t, "one"), h.approved(t, "two"), h.accepted(t, "cluster1"))
			}
		})
	}
}

// CA-18: that another agent is approved does not help the one that --requesters names.
func TestAcceptRequestersOfApproved(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	joined := cluster("cluster1", nil, "ManagedClusterJoined")
	joined.Spec.HubAcceptsClient = true
	h.Put(t, clustersPath+"/cluster1", joined)
	approved := fakehub.JoinRequest(t, "one", "cluster1", "a1")
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	h.putRequest(t, approved)
	const first = "system:open-cluster-management:cluster1:a1"
	h.run(t, "", "accept", "--cluster", "cluster1", "--requesters", first+"1").fails(t, "no csr is approved yet", first)
	h.run(t, "", "accept", "--cluster", "cluster1", "--requesters", first).succeeds(t, "cluster cluster1 is accepted")
}

func TestAcceptDryRun(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.putRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.run(t, "", "accept", "--cluster", "cluster1", "--dry-run").succeeds(t, "would approve CSR one", "would set hubAcceptsClient")
	if h.approved(t, "one") || h.accepted(t, "cluster1") {
		t.Error("something was done")
	}
}

// CA-18: --wait waits for the agent to create the cluster and its request.
func TestAcceptWait(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	done := make(chan result)
	go func() { done <- h.run(t, "", "accept", "--cluster", "cluster1", "--wait") }()
	h.awaitWatch(t, clustersPath)
	h.Put(t, clustersPath+"/cluster1", cluster("cluster1", nil))
	h.awaitWatch(t, csrsPath)
	h.putRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	(<-done).succeeds(t, "CSR one approved", "cluster cluster1 is accepted")
	if !h.approved(t, "one") || !h.accepted(t, "cluster1") {
		t.Error("not accepted")
	}
}

// awaitWatch returns once somebody watches a collection.
func (h hub) awaitWatch(t *testing.T, collection string) {
	t.Helper()
	if err := h.AwaitWatch(t.Context(), collection); err != nil {
		t.Fatal(err)
	}
}

func TestAcceptWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan result)
	go func() {
		done <- run(ctx, "", "--kubeconfig", h.kubeconfig, "accept", "--cluster", "cluster1", "--wait")
	}()
	h.awaitWatch(t, clustersPath)
	cancel()
	if got := <-done; got.code != 130 {
		t.Errorf("exit code %d, want 130: %s", got.code, got.errOut)
	}
}

func TestAcceptWaitTimesOut(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.run(t, "", "accept", "--cluster", "cluster1", "--wait", "--timeout", "1").fails(t, "wait for cluster cluster1", "not done after 1s (--timeout)", "agent of the cluster runs")
}

// The hub refuses what the user may not do; what was done before that stays said.
func TestAcceptForbidden(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	h.putClusters(t)
	h.putRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.Answer("PATCH "+clustersPath+"/cluster1", fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "may not accept"))
	got := h.run(t, "", "accept", "--cluster", "cluster1")
	got.fails(t, "accept cluster cluster1", "may not accept", "ask an administrator")
	if !strings.Contains(got.out, "CSR one approved") {
		t.Errorf("output %s", got.out)
	}
}
