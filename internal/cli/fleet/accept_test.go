package fleet_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/cli/clitest"
	"github.com/capstan-io/capstan/internal/cli/fakehub"
)

// CA-18: the request of the agent is approved through the subresource, the cluster is accepted by a merge patch.
func TestAccept(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "cluster1-x", "cluster1", "a1"))
	lookalike := fakehub.JoinRequest(t, "cluster1-evil", "cluster1", "a2")
	lookalike.Spec.Username += "-2"
	h.PutRequest(t, lookalike)
	h.PutRequest(t, fakehub.JoinRequest(t, "cluster2-x", "cluster2", "a1"))

	h.Run(t, "", "accept", "--clusters", "cluster1").Succeeds(t,
		"CSR cluster1-x approved", "set hubAcceptsClient to true for managed cluster cluster1", "cluster cluster1 is accepted",
		"Your managed cluster cluster1 has joined the Hub successfully")
	if !h.Approved(t, "cluster1-x") || h.Approved(t, "cluster1-evil") || h.Approved(t, "cluster2-x") {
		t.Error("the wrong requests are approved")
	}
	if !h.Accepted(t, "cluster1") || h.Accepted(t, "cluster2") {
		t.Error("the wrong clusters are accepted")
	}
	if put := h.Requests(http.MethodPut); len(put) != 1 || !strings.HasSuffix(put[0].Path, "/cluster1-x/approval") {
		t.Errorf("put %+v", put)
	}
	if patch := h.Requests(http.MethodPatch); len(patch) != 1 || patch[0].Body != `{"spec":{"hubAcceptsClient":true}}` {
		t.Errorf("patched %+v", patch)
	}
	h.Run(t, "", "accept", "--clusters", "cluster1").Succeeds(t, "set hubAcceptsClient")
}

// CA-18: without a request there is nobody to accept, unless the agent has access already.
func TestAcceptWithoutRequest(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	lookalike := fakehub.JoinRequest(t, "cluster1-evil", "cluster1", "a2")
	lookalike.Spec.Username = "jane"
	h.PutRequest(t, lookalike)
	got := h.Run(t, "", "accept", "--clusters", "cluster1,gone")
	got.Fails(t, "no csr is approved yet for cluster cluster1", "CSR cluster1-evil is left alone", `"jane"`, "--wait",
		"cluster gone is not known to the hub", "capstan get token")
	if h.Accepted(t, "cluster1") {
		t.Error("accepted a cluster without a request")
	}

	h.Put(t, clitest.ClustersPath+"/joined", clitest.AcceptedCluster("joined", "ManagedClusterJoined", "ManagedClusterConditionAvailable"))
	aws := clitest.Cluster("aws", nil)
	aws.Annotations = map[string]string{"agent.open-cluster-management.io/managed-cluster-arn": "arn:aws:eks:us-west-2:1:cluster/c"}
	h.Put(t, clitest.ClustersPath+"/aws", aws)
	h.Run(t, "", "accept", "--clusters", "joined,aws").Succeeds(t, "cluster joined is accepted", "cluster aws is accepted",
		"no request was there to approve")
}

// CA-18: "accept" succeeds again when the agent works whose request it approved, also once the hub has deleted that. While another request
// is pending, the one that --requesters means may be that one; one that is denied is never approved.
func TestAcceptOfARequestThatIsNotPending(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	works := []string{"ManagedClusterJoined", "ManagedClusterConditionAvailable"}
	const nobody, refused = "--requesters names none of those who asked", "has been denied, or has failed"
	const approved, denied, failed = certificatesv1.CertificateApproved, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed
	for name, test := range map[string]struct {
		conditions []string
		request    string
		age        time.Duration
		decided    []certificatesv1.RequestConditionType
		fails      string
	}{
		"works, another is pending":             {conditions: works, request: "first", fails: nobody},
		"works, an earlier one is pending":      {conditions: works, request: "first", age: time.Hour},
		"works, another is approved":            {conditions: works, request: "first", decided: decidedAs(approved)},
		"works, another is denied":              {conditions: works, request: "first", decided: decidedAs(denied)},
		"works, nothing asks":                   {conditions: works},
		"works, the named one is denied":        {conditions: works, request: "second", decided: decidedAs(denied), fails: refused},
		"works, the named one has failed":       {conditions: works, request: "second", decided: decidedAs(approved, failed), fails: refused},
		"is lost, another is pending":           {conditions: works[:1], request: "first", fails: nobody},
		"is lost, the named one is denied":      {conditions: works[:1], request: "second", decided: decidedAs(denied), fails: refused},
		"never joined, another is pending":      {request: "first", fails: nobody},
		"never joined, the named one is denied": {request: "second", decided: decidedAs(denied), fails: refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			c := clitest.AcceptedCluster("cluster1", test.conditions...)
			c.CreationTimestamp = metav1.NewTime(created)
			h.Put(t, clitest.ClustersPath+"/cluster1", c)
			if test.request != "" {
				request := fakehub.JoinRequest(t, test.request, "cluster1", "a1")
				request.CreationTimestamp = metav1.NewTime(created.Add(-test.age))
				for _, kind := range test.decided {
					request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
				}
				h.PutRequest(t, request)
			}
			got := h.Run(t, "", "accept", "--clusters", "cluster1", "--requesters", "second")
			if test.fails == "" {
				got.Succeeds(t, "cluster cluster1 is accepted", "no request was there to approve")
				return
			}
			got.Fails(t, test.fails)
			if strings.Contains(got.Out, "has joined the Hub") || h.Approved(t, test.request) {
				t.Errorf("a request is approved, or is said to be: %s", got.Out)
			}
		})
	}
}

func decidedAs(kinds ...certificatesv1.RequestConditionType) []certificatesv1.RequestConditionType {
	return kinds
}

// CA-18: --wait waits for the request that --requesters names, although an agent of the cluster works and another request is pending.
func TestAcceptWaitsForTheNamedRequest(t *testing.T) {
	t.Parallel()
	for _, denied := range []bool{false, true} {
		h := clitest.NewHub(t)
		joined := clitest.AcceptedCluster("cluster1", "ManagedClusterJoined", "ManagedClusterConditionAvailable")
		h.Put(t, clitest.ClustersPath+"/cluster1", joined)
		h.PutRequest(t, fakehub.JoinRequest(t, "first", "cluster1", "a1"))
		done := make(chan clitest.Result)
		go func() { done <- h.Run(t, "", "accept", "--clusters", "cluster1", "--requesters", "second", "--wait") }()
		h.WaitForWatch(t, clitest.RequestsPath)
		second := fakehub.JoinRequest(t, "second", "cluster1", "a1")
		if denied {
			second.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
		}
		h.PutRequest(t, second)
		if got := <-done; denied {
			got.Fails(t, "CSR second for cluster cluster1 has been denied")
		} else {
			got.Succeeds(t, "CSR second approved")
		}
	}
}

// CA-18: "accept" says that it is done when the agent that is to join has access, not when another one had.
func TestAcceptOfLostAgent(t *testing.T) {
	t.Parallel()
	lost := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	conditions := func(available metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "ManagedClusterJoined", Status: metav1.ConditionTrue},
			{Type: "ManagedClusterConditionAvailable", Status: available, LastTransitionTime: metav1.NewTime(lost)}}
	}
	approved := func(after time.Duration) *certificatesv1.CertificateSigningRequest {
		request := fakehub.JoinRequest(t, "first", "cluster1", "a1")
		request.CreationTimestamp = metav1.NewTime(lost.Add(-time.Hour))
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, LastUpdateTime: metav1.NewTime(lost.Add(after))}}
		return request
	}
	const first = "system:open-cluster-management:cluster1:a1"
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		request    *certificatesv1.CertificateSigningRequest
		flags      []string
		refused    bool
	}{
		"works":                      {conditions: conditions(metav1.ConditionTrue)},
		"works, approved before":     {conditions: conditions(metav1.ConditionTrue), request: approved(-time.Minute)},
		"lost":                       {conditions: conditions(metav1.ConditionUnknown), refused: true},
		"lost, approved before":      {conditions: conditions(metav1.ConditionUnknown), request: approved(-time.Minute), refused: true},
		"unhealthy, approved before": {conditions: conditions(metav1.ConditionFalse), request: approved(-time.Minute), refused: true},
		"lost, approved before, and named": {conditions: conditions(metav1.ConditionUnknown), request: approved(-time.Minute),
			flags: []string{"--requesters", first}},
		"lost, approved since":                {conditions: conditions(metav1.ConditionUnknown), request: approved(time.Minute)},
		"never heard of, approved":            {request: approved(-time.Minute)},
		"joined, of whose agent nothing said": {conditions: conditions("")[:1], refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			c := clitest.AcceptedCluster("cluster1")
			c.Status.Conditions = test.conditions
			h.Put(t, clitest.ClustersPath+"/cluster1", c)
			if test.request != nil {
				h.PutRequest(t, test.request)
			}
			got := h.Run(t, "", append([]string{"accept", "--clusters", "cluster1"}, test.flags...)...)
			if !test.refused {
				got.Succeeds(t, "cluster cluster1 is accepted")
				return
			}
			got.Fails(t, "no csr is approved yet for cluster cluster1", "It was accepted before, for an agent")
			if len(h.Requests(http.MethodPatch)) > 0 {
				t.Error("the cluster was changed")
			}
			done := make(chan clitest.Result)
			go func() { done <- h.Run(t, "", "accept", "--cluster", "cluster1", "--wait") }()
			h.WaitForWatch(t, clitest.RequestsPath)
			h.PutRequest(t, fakehub.JoinRequest(t, "again", "cluster1", "a2"))
			(<-done).Fails(t, "an agent of cluster cluster1 has a certificate already, and one asks for another", "CSR again")
		})
	}
}

// CA-18, O16: of several agents that request to be the same cluster, only the named ones are approved.
func TestAcceptRequesters(t *testing.T) {
	t.Parallel()
	const first, second = "system:open-cluster-management:cluster1:a1", "system:open-cluster-management:cluster1:a11"
	tests := map[string]struct {
		flags  []string
		a1, a2 bool
		fails  []string
	}{
		"not chosen": {fails: []string{"2 agents ask to be cluster cluster1", first, second, "--requesters", "--skip-approve-check",
			"kubectl get klusterlets", ".metadata.uid", "system:open-cluster-management:cluster1:UID",
			`"capstan join --local"`, "$CAPSTAN_HOME/clusters/cluster1/agent/agent-name"}},
		"chosen": {flags: []string{"--requesters", first}, a1: true},
		"only a start": {flags: []string{"--requesters", "system:open-cluster-management:cluster1:"},
			fails: []string{"no csr is approved yet", "match whole", first, second}},
		"both":      {flags: []string{"--requesters", first + "," + second}, a1: true, a2: true},
		"unchecked": {flags: []string{"--skip-approve-check"}, a1: true, a2: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			h.PutClusters(t)
			h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
			h.PutRequest(t, fakehub.JoinRequest(t, "two", "cluster1", "a11"))
			got := h.Run(t, "", append([]string{"accept", "--cluster", "cluster1"}, test.flags...)...)
			if len(test.fails) > 0 {
				got.Fails(t, test.fails...)
			} else {
				got.Succeeds(t)
			}
			if h.Approved(t, "one") != test.a1 || h.Approved(t, "two") != test.a2 || h.Accepted(t, "cluster1") != (len(test.fails) == 0) {
				t.Errorf("approved %t and %t, accepted %t", h.Approved(t, "one"), h.Approved(t, "two"), h.Accepted(t, "cluster1"))
			}
		})
	}
}

// CA-18: anyone with a bootstrap credential can ask in the name of another's agent, which takes a key of their own. Such a request is
// approved by its own name only.
func TestAcceptOfACopiedName(t *testing.T) {
	t.Parallel()
	const agent = "system:open-cluster-management:cluster1:a1"
	const copied, certified = "are in the name of the same agent, but for different keys", "has a certificate already"
	decided := func(kinds ...certificatesv1.RequestConditionType) (conditions []certificatesv1.CertificateSigningRequestCondition) {
		for _, kind := range kinds {
			conditions = append(conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
		}
		return conditions
	}
	approved := decided(certificatesv1.CertificateApproved)
	for name, test := range map[string]struct {
		sameKey  bool
		first    []certificatesv1.CertificateSigningRequestCondition
		flags    []string
		refused  string
		one, two bool // approved by it
	}{
		"two keys":                            {refused: copied},
		"two keys, agent named":               {flags: []string{"--requesters", agent}, refused: copied},
		"two keys, request named":             {flags: []string{"--requesters", "second"}, two: true},
		"two keys, both requests named":       {flags: []string{"--requesters", "first,second"}, one: true, two: true},
		"two keys, unchecked":                 {flags: []string{"--skip-approve-check"}, one: true, two: true},
		"one key, asked for twice":            {sameKey: true, one: true, two: true},
		"another key approved":                {first: approved, refused: certified},
		"another key approved, agent named":   {first: approved, flags: []string{"--requesters", agent}, refused: certified},
		"another key approved, request named": {first: approved, flags: []string{"--requesters", "second"}, two: true},
		"another key approved, both named":    {first: approved, flags: []string{"--requesters", agent + ",second"}, two: true},
		"this key approved":                   {sameKey: true, first: approved, two: true},
		"another key denied":                  {first: decided(certificatesv1.CertificateDenied), two: true},
		"another key approved, and failed": {first: decided(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed),
			two: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			h.PutClusters(t)
			first, second := fakehub.JoinRequest(t, "first", "cluster1", "a1"), fakehub.JoinRequest(t, "second", "cluster1", "a1")
			first.Status.Conditions = test.first
			if test.sameKey {
				second.Spec.Request = first.Spec.Request
			}
			h.PutRequest(t, first)
			h.PutRequest(t, second)
			got := h.Run(t, "", append([]string{"accept", "--clusters", "cluster1"}, test.flags...)...)
			if test.refused != "" {
				got.Fails(t, test.refused, "CSR second", "--requesters", "kubectl certificate deny REQUEST")
			} else {
				got.Succeeds(t)
			}
			if h.Approved(t, "first") != test.one || h.Approved(t, "second") != test.two || h.Accepted(t, "cluster1") != (test.refused == "") {
				t.Errorf("approved %t and %t, accepted %t", h.Approved(t, "first"), h.Approved(t, "second"), h.Accepted(t, "cluster1"))
			}
			if test.refused != "" {
				h.Follow(t, got, "accept --clusters cluster1 --requesters REQUEST", "REQUEST", "second").Succeeds(t, "CSR second approved")
			}
		})
	}
}

// "prints common names of requests raw": what a terminal acts on is quoted, and a name in several lines is one.
func TestAcceptRequestersWithUnprintableNames(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1\x1b[2K\nnobody asks"))
	got := h.Run(t, "", "accept", "--cluster", "cluster1", "--requesters", "system:open-cluster-management:cluster1:a2")
	got.Fails(t, "no csr is approved yet", `"system:open-cluster-management:cluster1:a1\x1b[2K\nnobody asks"`)
	if strings.Contains(got.ErrOut, "\x1b[2K") {
		t.Errorf("printed %q", got.ErrOut)
	}
	h.PutRequest(t, fakehub.JoinRequest(t, "two\x1b[2K", "cluster1", "a3"))
	got = h.Run(t, "", "accept", "--cluster", "cluster1")
	got.Fails(t, "2 agents ask to be cluster cluster1", `CSR "two\x1b[2K"`)
	if strings.Contains(got.ErrOut, "\x1b[2K") {
		t.Errorf("printed %q", got.ErrOut)
	}
}

// CA-18: anyone with a bootstrap credential can name a request like the agent of another, and it is not approved for that.
func TestAcceptOfARequestNamedLikeAnAgent(t *testing.T) {
	t.Parallel()
	const agent = "system:open-cluster-management:cluster1:a1"
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.PutRequest(t, fakehub.JoinRequest(t, agent, "cluster1", "another"))
	h.Run(t, "", "accept", "--cluster", "cluster1", "--requesters", agent).Succeeds(t, "CSR one approved")
	if !h.Approved(t, "one") || h.Approved(t, agent) {
		t.Errorf("approved %t, and the one of another agent %t", h.Approved(t, "one"), h.Approved(t, agent))
	}
}

// CA-18: that another agent is approved does not help the one that --requesters names.
func TestAcceptRequestersOfApproved(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	joined := clitest.Cluster("cluster1", nil, "ManagedClusterJoined")
	joined.Spec.HubAcceptsClient = true
	h.Put(t, clitest.ClustersPath+"/cluster1", joined)
	approved := fakehub.JoinRequest(t, "one", "cluster1", "a1")
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	h.PutRequest(t, approved)
	const first = "system:open-cluster-management:cluster1:a1"
	h.Run(t, "", "accept", "--cluster", "cluster1", "--requesters", first+"1").Fails(t, "no csr is approved yet", first)
	h.Run(t, "", "accept", "--cluster", "cluster1", "--requesters", first).Succeeds(t, "cluster cluster1 is accepted")
}

func TestAcceptDryRun(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.Run(t, "", "accept", "--cluster", "cluster1", "--dry-run").Succeeds(t, "would approve CSR one", "would set hubAcceptsClient")
	if h.Approved(t, "one") || h.Accepted(t, "cluster1") {
		t.Error("something was done")
	}
}

// CA-18: --wait waits for the agent to create the cluster and its request.
func TestAcceptWait(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	done := make(chan clitest.Result)
	go func() { done <- h.Run(t, "", "accept", "--cluster", "cluster1", "--wait") }()
	h.WaitForWatch(t, clitest.ClustersPath)
	h.Put(t, clitest.ClustersPath+"/cluster1", clitest.Cluster("cluster1", nil))
	h.WaitForWatch(t, clitest.RequestsPath)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	(<-done).Succeeds(t, "CSR one approved", "cluster cluster1 is accepted")
	if !h.Approved(t, "one") || !h.Accepted(t, "cluster1") {
		t.Error("not accepted")
	}
}

// --wait does not let a cluster that has requested to join wait for one that does not.
func TestAcceptWaitAcceptsWhatHasAsked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second bool // has a ManagedCluster
		says          string
	}{
		"unknown":         {second: true, says: "wait for cluster first"},
		"without request": {first: true, second: true, says: "wait for certificate requests of cluster first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			watched := clitest.ClustersPath
			if test.first {
				h.Put(t, clitest.ClustersPath+"/first", clitest.Cluster("first", nil))
				watched = clitest.RequestsPath
			}
			h.Put(t, clitest.ClustersPath+"/second", clitest.Cluster("second", nil))
			h.PutRequest(t, fakehub.JoinRequest(t, "two", "second", "a1"))
			got := h.TimesOut(t, watched, "", "accept", "--clusters", "first,second", "--wait", "--timeout", "1")
			got.Fails(t, test.says, "not done after 1s (--timeout)", "agent of the cluster runs")
			if !strings.Contains(got.Out, "cluster second is accepted") || !h.Approved(t, "two") || !h.Accepted(t, "second") {
				t.Errorf("the second one is not accepted: %s", got.Out)
			}
			if strings.Contains(got.ErrOut, "second") {
				t.Errorf("the error names the second one: %s", got.ErrOut)
			}
		})
	}
}

// With --wait, clusters are accepted in the order in which they request it.
func TestAcceptWaitInTheOrderOfAsking(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	accepted := make(chan struct{})
	left := 2 // the approval and the acceptance
	h.OnWrite(func() {
		if left--; left == 0 {
			close(accepted)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan clitest.Result)
	go func() {
		done <- clitest.Run(ctx, "", "--kubeconfig", h.File, "accept", "--clusters", "first,second", "--wait", "-o", "json")
	}()
	request := func(cluster string) {
		h.PutRequest(t, fakehub.JoinRequest(t, "of-"+cluster, cluster, "a1"))
		h.Put(t, clitest.ClustersPath+"/"+cluster, clitest.Cluster(cluster, nil))
	}
	h.WaitForWatch(t, clitest.ClustersPath)
	request("second")
	clitest.Closed(accepted)(ctx)
	if !h.Accepted(t, "second") {
		t.Error("the second one is not accepted before the first one asks")
	}
	request("first")
	got := <-done
	got.Succeeds(t)
	var answers []struct {
		Cluster  string
		Accepted bool
	}
	if err := json.Unmarshal([]byte(got.Out), &answers); err != nil || len(answers) != 2 || answers[0].Cluster != "first" ||
		!answers[0].Accepted || !answers[1].Accepted {
		t.Errorf("%v: %s", err, got.Out)
	}
}

func TestAcceptWaitIsInterrupted(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan clitest.Result)
	go func() {
		done <- clitest.Run(ctx, "", "--kubeconfig", h.File, "accept", "--cluster", "cluster1", "--wait")
	}()
	h.WaitForWatch(t, clitest.ClustersPath)
	cancel()
	if got := <-done; got.Code != 130 {
		t.Errorf("exit code %d, want 130: %s", got.Code, got.ErrOut)
	}
}

func TestAcceptWaitTimesOut(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.TimesOut(t, clitest.ClustersPath, "", "accept", "--cluster", "cluster1", "--wait", "--timeout", "1").Fails(t, "wait for cluster cluster1",
		"not done after 1s (--timeout)", "agent of the cluster runs")
}

// The hub refuses what the user may not do; what was done before that stays said.
func TestAcceptForbidden(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.PutClusters(t)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.Handle("PATCH "+clitest.ClustersPath+"/cluster1", fakehub.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "may not accept"))
	got := h.Run(t, "", "accept", "--cluster", "cluster1")
	got.Fails(t, "accept cluster cluster1", "may not accept", "ask an administrator")
	if !strings.Contains(got.Out, "CSR one approved") {
		t.Errorf("output %s", got.Out)
	}
}

// CA-18: "accept" on a cluster that has an agent does not approve another one silently: whoever has a bootstrap credential could
// take the cluster over the next time that an administrator accepts it.
func TestAcceptAsksForAnotherAgent(t *testing.T) {
	t.Parallel()
	const other = "system:open-cluster-management:cluster1:other"
	joined := clitest.AcceptedCluster("cluster1", "ManagedClusterJoined")
	denied := clitest.Cluster("cluster1", nil, "ManagedClusterJoined")
	approved := fakehub.JoinRequest(t, "first", "cluster1", "a1")
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
	for name, test := range map[string]struct {
		cluster *clusterv1.ManagedCluster
		earlier *certificatesv1.CertificateSigningRequest
		flags   []string
		refused bool
	}{
		"of a cluster that has joined":                 {cluster: joined, refused: true},
		"of a cluster that was denied":                 {cluster: denied, refused: true},
		"of a cluster whose agent was approved":        {cluster: clitest.Cluster("cluster1", nil), earlier: approved, refused: true},
		"of a cluster that has joined, named":          {cluster: joined, flags: []string{"--requesters", other}, refused: true},
		"of a cluster that was denied, named":          {cluster: denied, flags: []string{"--requesters", other}, refused: true},
		"of a cluster that has joined, by its request": {cluster: joined, flags: []string{"--requesters", "another"}},
		"of a cluster whose agent was approved, named": {cluster: clitest.Cluster("cluster1", nil), earlier: approved,
			flags: []string{"--requesters", other}},
		"of a cluster that has joined, unchecked":  {cluster: joined, flags: []string{"--skip-approve-check"}},
		"of a cluster that nobody has been so far": {cluster: clitest.Cluster("cluster1", nil)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			h.Put(t, clitest.ClustersPath+"/cluster1", test.cluster)
			if test.earlier != nil {
				h.PutRequest(t, test.earlier)
			}
			h.PutRequest(t, fakehub.JoinRequest(t, "another", "cluster1", "other"))
			got := h.Run(t, "", append([]string{"accept", "--clusters", "cluster1"}, test.flags...)...)
			if !test.refused {
				got.Succeeds(t, "CSR another approved")
				return
			}
			got.Fails(t, "an agent of cluster cluster1 has a certificate already", other, "CSR another", "agent-registration-bootstrap",
				"--requesters", "--skip-approve-check")
			if h.Approved(t, "another") || len(h.Requests(http.MethodPatch)) > 0 {
				t.Error("the other agent is let in all the same")
			}
		})
	}
}

// CA-18: what was approved for a deleted cluster of the same name keeps no new agent out, and does not stand for its request either. The
// approval counts, not the request: an agent may request it before its ManagedCluster exists.
func TestAcceptIgnoresEarlierClusters(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	again := clitest.Cluster("cluster1", nil)
	again.CreationTimestamp = metav1.NewTime(created)
	decided := func(kind certificatesv1.RequestConditionType, requested, updated time.Duration) *certificatesv1.CertificateSigningRequest {
		request := fakehub.JoinRequest(t, "first", "cluster1", "a1")
		request.CreationTimestamp = metav1.NewTime(created.Add(requested))
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: kind, LastUpdateTime: metav1.NewTime(created.Add(updated))}}
		return request
	}
	const approved = certificatesv1.CertificateApproved
	for name, test := range map[string]struct {
		earlier *certificatesv1.CertificateSigningRequest
		// refused is why the request of another agent is not approved, alone is what becomes of the cluster without it.
		refused, alone string
	}{
		"approved for an earlier cluster": {earlier: decided(approved, -time.Hour, -time.Minute), alone: "no csr is approved yet"},
		"approved beside the cluster": {earlier: decided(approved, -3*time.Second, -2*time.Second),
			refused: "has a certificate already"},
		"asked before, approved after": {earlier: decided(approved, -time.Hour, time.Minute), refused: "has a certificate already"},
		"denied for an earlier cluster": {earlier: decided(certificatesv1.CertificateDenied, -time.Hour, -time.Minute),
			alone: "no csr is approved yet"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := clitest.NewHub(t)
			h.Put(t, clitest.ClustersPath+"/cluster1", again.DeepCopy())
			h.PutRequest(t, test.earlier)
			alone := h.Run(t, "", "accept", "--clusters", "cluster1", "--dry-run")
			if test.alone != "" {
				alone.Fails(t, test.alone)
			} else {
				alone.Succeeds(t)
			}
			left := fakehub.JoinRequest(t, "left", "cluster1", "dead")
			left.CreationTimestamp = metav1.NewTime(created.Add(-time.Hour))
			h.PutRequest(t, left)
			if test.alone != "" {
				h.Run(t, "", "accept", "--clusters", "cluster1").Fails(t, "CSR left is left alone: it is of 2026-11-23T11:00:00Z",
					"--requesters left approves it")
			}
			pending := fakehub.JoinRequest(t, "another", "cluster1", "other")
			pending.CreationTimestamp = metav1.NewTime(created.Add(time.Second))
			h.PutRequest(t, pending)
			got := h.Run(t, "", "accept", "--clusters", "cluster1")
			if test.refused != "" {
				got.Fails(t, test.refused)
				return
			}
			got.Succeeds(t, "CSR another approved", "cluster cluster1 is accepted")
			if h.Approved(t, "left") {
				t.Error("the request of an agent of an earlier cluster is approved")
			}
			h.Run(t, "", "accept", "--clusters", "cluster1", "--requesters", "left").Succeeds(t, "CSR left approved")
		})
	}
}

// CA-18: --wait waits for the request of the new agent, although an earlier cluster of the same name had one.
func TestAcceptWaitsDespiteEarlierClusters(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	again := clitest.Cluster("cluster1", nil)
	again.CreationTimestamp = metav1.NewTime(time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC))
	h.Put(t, clitest.ClustersPath+"/cluster1", again)
	earlier := fakehub.JoinRequest(t, "first", "cluster1", "a1")
	earlier.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved,
		LastUpdateTime: metav1.NewTime(again.CreationTimestamp.Add(-time.Minute))}}
	h.PutRequest(t, earlier)
	done := make(chan clitest.Result)
	go func() { done <- h.Run(t, "", "accept", "--cluster", "cluster1", "--wait") }()
	h.WaitForWatch(t, clitest.RequestsPath)
	another := fakehub.JoinRequest(t, "another", "cluster1", "other")
	another.CreationTimestamp = again.CreationTimestamp
	h.PutRequest(t, another)
	(<-done).Succeeds(t, "CSR another approved", "cluster cluster1 is accepted")
}

// "accept" shows what is accepted, also what strangers wrote, without letting them write to the terminal.
func TestAcceptShowsWhatIsAccepted(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	requested := clitest.Cluster("cluster1", map[string]string{"cluster.open-cluster-management.io/clusterset": "default"})
	requested.Annotations = map[string]string{"capstan.io/requested-by": "system:bootstrap:abcdef",
		"agent.open-cluster-management.io/a": "b\x1b[2K"}
	requested.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "https://cluster1.example.com"}}
	requested.Spec.Taints = []clusterv1.Taint{{Key: "k", Value: "v", Effect: clusterv1.TaintEffectNoSelect}}
	h.Put(t, clitest.ClustersPath+"/cluster1", requested)
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	h.Put(t, "/api/v1/namespaces/cluster1", &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster1"},
	})
	got := h.Run(t, "", "accept", "--clusters", "cluster1", "--dry-run")
	got.Succeeds(t, "RequestedBy: system:bootstrap:abcdef", "URLs: https://cluster1.example.com", "clusterset: default",
		`agent.open-cluster-management.io/a: "b\x1b[2K"`,
		"Taint: k=v:NoSelect", "Namespace: exists and was not made for a cluster", "Request: one",
		"Agent: system:open-cluster-management:cluster1:a1",
		"Requester: system:serviceaccount:open-cluster-management:agent-registration-bootstrap")
	if strings.Contains(got.Out, "\x1b") {
		t.Errorf("the terminal acts on %q", got.Out)
	}
}

// A script reads from JSON who requests to join, and chooses.
func TestAcceptJSON(t *testing.T) {
	t.Parallel()
	h := clitest.NewHub(t)
	h.Put(t, clitest.ClustersPath+"/cluster1", clitest.AcceptedCluster("cluster1", "ManagedClusterJoined"))
	h.PutRequest(t, fakehub.JoinRequest(t, "one", "cluster1", "a1"))
	type answer struct {
		Cluster, Error   string
		Accepted, Joined bool
		Requests         []struct {
			Name, Agent, Requester string
			Approved               bool
		}
	}
	accept := func(flags ...string) (answer, int) {
		t.Helper()
		got := h.Run(t, "", append([]string{"accept", "--clusters", "cluster1", "-o", "json"}, flags...)...)
		var answers []answer
		if err := json.Unmarshal([]byte(got.Out), &answers); err != nil || len(answers) != 1 || len(answers[0].Requests) != 1 {
			t.Fatalf("%v: %s%s", err, got.Out, got.ErrOut)
		}
		return answers[0], got.Code
	}
	requested, code := accept()
	if code != 1 || !requested.Joined || !strings.Contains(requested.Error, "has a certificate already") || requested.Requests[0].Approved {
		t.Errorf("exit code %d: %+v", code, requested)
	}
	if done, code := accept("--requesters", requested.Requests[0].Name); code != 0 || !done.Accepted || !done.Requests[0].Approved ||
		done.Error != "" || !h.Approved(t, "one") {
		t.Errorf("exit code %d: %+v", code, done)
	}
}
