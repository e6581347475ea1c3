package inprocess_test

import (
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

var grpcServer = &user.DefaultInfo{Name: "system:serviceaccount:open-cluster-management-hub:grpc-server-sa",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub", "system:authenticated"}}

// hostedGRPCServer is that of a hosted hub, in the namespace indigo.
var hostedGRPCServer = &user.DefaultInfo{Name: "system:serviceaccount:indigo:grpc-server-sa",
	Groups: []string{"system:serviceaccounts", "system:serviceaccounts:indigo", "system:authenticated"}}

// csrByGRPC is a certificate request that the gRPC server makes for a user.
func csrByGRPC(t *testing.T, user, cluster string, bytes int) *unstructured.Unstructured {
	t.Helper()
	csr := request(t, bytes)
	csr.SetLabels(map[string]string{"open-cluster-management.io/cluster-name": cluster})
	csr.SetAnnotations(map[string]string{"open-cluster-management.io/csr-user": user})
	return csr
}

// What agents, and those who join, write by gRPC is as bounded as on the API, in a standalone hub and by the webhooks.
func TestGRPCServerWritesForAgents(t *testing.T) {
	t.Parallel()
	const agent, joiner = "system:open-cluster-management:c1:a", "system:bootstrap:abcdef"
	text := func(bytes int) string { return strings.Repeat("m", bytes) }
	claims := func(bytes int) *unstructured.Unstructured {
		return cluster(t, `metadata: {name: c1}, status: {clusterClaims: [{name: a, value: "`+text(bytes)+`"}]}`)
	}
	configs := func(bytes int) *unstructured.Unstructured {
		return cluster(t, `metadata: {name: c1}, spec: {managedClusterClientConfigs: [{url: "https://c1/`+text(bytes)+`"}]}`)
	}
	annotated := func(notes string) *unstructured.Unstructured {
		return cluster(t, "metadata: {name: c1, annotations: {"+notes+"}}")
	}
	lease := func(bytes int) *unstructured.Unstructured {
		return object(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: managed-cluster-lease, namespace: c1},
			spec: {holderIdentity: "`+text(bytes)+`"}}`)
	}
	addOn := func(bytes int, registrations string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1},
			status: {registrations: [`+registrations+`], conditions: [{type: A, message: "`+text(bytes)+`"}]}}`)
	}
	work := func(bytes int, finalizers string) *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork,
			metadata: {name: w, namespace: c1, finalizers: [`+finalizers+`]}, spec: {workload: {manifests: []}},
			status: {conditions: [{type: Applied, message: "`+text(bytes)+`"}]}}`)
	}
	const requestedBy = "capstan.io/requested-by: " + joiner
	large := cluster(t, `metadata: {name: c1, annotations: {`+requestedBy+`}}, spec: {managedClusterClientConfigs: [{url: "https://c1/`+
		text(100<<10)+`"}]}`)
	for _, test := range []struct {
		name        string
		object, old *unstructured.Unstructured
		subresource string
		code        int32
		refused     string
	}{
		{name: "request of an agent", object: csrByGRPC(t, agent, "c1", 8<<10)},
		{name: "large request of an agent", object: csrByGRPC(t, agent, "c1", 17<<10), code: 413,
			refused: `CertificateSigningRequest "r" takes`},
		{name: "request of an agent for another cluster", object: csrByGRPC(t, agent, "c2", 1), code: 403,
			refused: `user "system:open-cluster-management:c1:a" is an agent of cluster "c1"`},
		{name: "request of a joiner", object: csrByGRPC(t, joiner, "c2", 8<<10)},
		{name: "large request of a joiner", object: csrByGRPC(t, joiner, "c2", 17<<10), code: 413,
			refused: `CertificateSigningRequest "r" takes`},
		{name: "large request of nobody", object: csrByGRPC(t, "", "c2", 17<<10), code: 413, refused: `CertificateSigningRequest "r" takes`},
		{name: "cluster that joins", object: annotated(requestedBy)},
		{name: "large cluster that joins", object: large, code: 413, refused: `ManagedCluster "c1", its annotations`},
		{name: "client configs", object: configs(32 << 10), old: configs(1)},
		{name: "large client configs", object: configs(100 << 10), old: configs(1), code: 413, refused: `ManagedCluster "c1", its annotations`},
		{name: "annotation of the agent", object: annotated("agent.open-cluster-management.io/a: b"), old: annotated("")},
		{name: "which cluster of AWS it is", object: annotated("agent.open-cluster-management.io/managed-cluster-arn: b"), old: annotated(""),
			code: 403, refused: "metadata.annotations"},
		{name: "claims", object: claims(100_000), old: claims(1), subresource: "status"},
		{name: "large claims", object: claims(300_000), old: claims(1), subresource: "status", code: 413,
			refused: `status of ManagedCluster "c1" takes`},
		{name: "Lease", object: lease(1 << 10), old: lease(1)},
		{name: "large Lease", object: lease(9 << 10), old: lease(1), code: 413, refused: "Lease c1/managed-cluster-lease takes"},
		{name: "status of an add-on", object: addOn(32<<10, ""), old: addOn(1, ""), subresource: "status"},
		{name: "large status of an add-on", object: addOn(65<<10, ""), old: addOn(1, ""), subresource: "status", code: 413,
			refused: "status.conditions of ManagedClusterAddOn c1/a takes"},
		{name: "as whom an add-on acts", object: addOn(1, "{type: CSR, csr: {signerName: a/b}}"), old: addOn(1, ""), subresource: "status",
			code: 403, refused: "status.registrations"},
		{name: "status of a work", object: work(32<<10, ""), old: work(1, ""), subresource: "status"},
		{name: "large status of a work", object: work(65<<10, ""), old: work(1, ""), subresource: "status", code: 413,
			refused: "status of ManifestWork c1/w with 0 manifests takes"},
		{name: "finalizer of agents", object: work(1, "cluster.open-cluster-management.io/manifest-work-cleanup"), old: work(1, "")},
		{name: "another finalizer", object: work(1, "example.com/hold"), old: work(1, ""), code: 403, refused: "metadata.finalizers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			checkStatus(t, as(grpcServer).write(t, test.object.DeepCopy(), test.old, test.subresource), test.code, test.refused)
			hosted := as(hostedGRPCServer)
			hosted.options.HubNamespace = "indigo"
			checkStatus(t, hosted.write(t, test.object, test.old, test.subresource), test.code, test.refused)
		})
	}
}

// By gRPC, each requester has as many undecided requests as on the API, and those of others, and of before, count for themselves.
func TestUndecidedRequestsByGRPC(t *testing.T) {
	t.Parallel()
	const agent, joiner = "system:open-cluster-management:c1:a", "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"
	for _, test := range []struct {
		name, user              string
		waiting, onAPI, decided int
		ofOthers                int
		refused                 bool
	}{
		{name: "agent", user: agent, waiting: 199, decided: 10, ofOthers: 300},
		{name: "agent with many", user: agent, waiting: 200, refused: true},
		{name: "agent with many, some of them on the API", user: agent, waiting: 150, onAPI: 50, refused: true},
		{name: "joiner", user: joiner, waiting: 2, ofOthers: 10},
		{name: "joiner with many", user: joiner, waiting: 3, refused: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.options.JoinLimit = 3
			validator, known := requestValidator(t, s)
			add := func(kind string, number int, change func(*certificatesv1.CertificateSigningRequest)) {
				for i := range number {
					csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(kind, i),
						Annotations: map[string]string{"open-cluster-management.io/csr-user": test.user}}}
					csr.Spec.Username = grpcServer.Name
					change(csr)
					if err := known.Add(csr); err != nil {
						t.Fatal(err)
					}
				}
			}
			add("waiting", test.waiting, func(*certificatesv1.CertificateSigningRequest) {})
			add("api", test.onAPI, func(csr *certificatesv1.CertificateSigningRequest) {
				csr.Spec.Username, csr.Annotations = test.user, nil
			})
			add("decided", test.decided, func(csr *certificatesv1.CertificateSigningRequest) {
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
			})
			add("other", test.ofOthers, func(csr *certificatesv1.CertificateSigningRequest) {
				csr.Annotations["open-cluster-management.io/csr-user"] = "system:open-cluster-management:c2:a"
			})
			err := validator.Validate(t.Context(), creation(csrByGRPC(t, test.user, "c1", 1),
				certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), grpcServer), nil)
			code := int32(0)
			if test.refused {
				code = 429
			}
			checkStatus(t, err, code, fmt.Sprintf("user %q has %d requests that nobody has decided on", test.user, test.waiting+test.onAPI))
		})
	}
}

// Events of a cluster count together, by gRPC and on the API, and one that is too large is refused.
func TestEventsByGRPC(t *testing.T) {
	t.Parallel()
	limiter := plugin[admission.ValidationInterface](t, newServer(), inprocess.AgentEventLimiting)
	send := func(who user.Info, cluster, note string) error {
		event := object(t, `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: `+cluster+`, name: e}, note: "`+note+`"}`)
		return limiter.Validate(t.Context(),
			creation(event, schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, who), nil)
	}
	checkStatus(t, send(grpcServer, "c1", strings.Repeat("n", 9<<10)), 413, "event c1/e takes")
	for range 100 {
		checkStatus(t, send(grpcServer, "c1", "n"), 0, "")
		checkStatus(t, send(agentOfC1, "c1", "n"), 0, "")
	}
	checkStatus(t, send(grpcServer, "c1", "n"), 429, "an agent of cluster c1, sends more events than the hub keeps")
	checkStatus(t, send(grpcServer, "c2", "n"), 0, "")
}

// The webhooks that are for agents alone are also called for what the gRPC server writes, and not about others.
func TestWebhooksSeeTheGRPCServer(t *testing.T) {
	t.Parallel()
	lease := object(t, "{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: managed-cluster-lease, namespace: c1}}")
	for resource, written := range map[string]*unstructured.Unstructured{
		"certificatesigningrequests": csrByGRPC(t, agentOfC1.Name, "c1", 1), "leases": lease,
	} {
		for _, who := range []*user.DefaultInfo{agentOfC1, grpcServer} {
			if !sees(t, resource, written, nil, who) {
				t.Errorf("no webhook sees the %s that %q writes", resource, who.Name)
			}
		}
		if sees(t, resource, written, nil, sender) {
			t.Errorf("a webhook sees the %s that %q writes", resource, sender.Name)
		}
	}
}
