package inprocess_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

var agentOfC1 = &user.DefaultInfo{Name: "system:open-cluster-management:c1:a",
	Groups: []string{"system:open-cluster-management:c1", "system:open-cluster-management:managed-clusters"}}

func request(t *testing.T, bytes int) *unstructured.Unstructured {
	t.Helper()
	return object(t, `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r, labels: {open-cluster-management.io/cluster-name: c1}},
		spec: {request: "`+strings.Repeat("A", bytes)+`"}}`)
}

// What agents and joiners may write is bounded: certificate requests of 250 kB, client configs and claims of a megabyte. So is whatever
// else agents write: entries that they make up in managedNamespaces, the holder of a Lease, the status of add-ons and works. An add-on's
// agent has the same bounds.
func TestSizes(t *testing.T) {
	t.Parallel()
	joiner := newcomers["bootstrap token"]
	configs := func(bytes int) *unstructured.Unstructured {
		return cluster(t, `metadata: {name: c1}, spec: {managedClusterClientConfigs: [{url: "https://c1", caBundle: "`+
			strings.Repeat("QUJD", bytes/4)+`"}]}`)
	}
	claims := func(bytes int) *unstructured.Unstructured {
		return cluster(t, `metadata: {name: c1}, status: {clusterClaims: [{name: a, value: "`+strings.Repeat("v", bytes)+`"}]}`)
	}
	namespaces := func(name string, bytes int) *unstructured.Unstructured {
		entries := strings.Repeat(`{name: a, clusterSet: "`+strings.Repeat("v", 1<<10)+`"}, `, 1<<10)
		return cluster(t, `metadata: {name: c1}, status: {managedNamespaces: [`+entries+`{name: `+name+
			`, clusterSet: s, conditions: [{type: A, message: "`+strings.Repeat("m", bytes)+`"}]}]}`)
	}
	lease := func(bytes int) *unstructured.Unstructured {
		return object(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l, namespace: c1}, spec: {holderIdentity: "`+
			strings.Repeat("h", bytes)+`"}}`)
	}
	addOn := func(bytes int) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: ManagedClusterAddOn, metadata: {name: a, namespace: c1},
			status: {namespace: "`+strings.Repeat("n", 1<<20)+`", conditions: [{type: A, message: "`+strings.Repeat("m", bytes)+`"}]}}`)
	}
	work := func(manifests, bytes int, configs string) *unstructured.Unstructured {
		return object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w, namespace: c1},
			spec: {workload: {manifests: [`+strings.Repeat(`{apiVersion: v1, kind: ConfigMap, metadata: {name: c}},`, manifests)+
			`]}, manifestConfigs: [`+configs+`]},
			status: {conditions: [{type: Applied, message: "`+strings.Repeat("m", bytes)+`"}]}}`)
	}
	annotatedWork := func(bytes int) *unstructured.Unstructured {
		w := work(1, 1, "")
		w.SetAnnotations(map[string]string{"example.com/text": strings.Repeat("t", bytes)})
		return w
	}
	addOnOfC1 := &user.DefaultInfo{Name: "system:open-cluster-management:cluster:c1:addon:a:agent:x",
		Groups: []string{"system:open-cluster-management:cluster:c1:addon:a"}}
	tokenOfC1, agentOfC2 := &user.DefaultInfo{Name: "system:serviceaccount:c1:a-agent"},
		&user.DefaultInfo{Name: "system:open-cluster-management:c2:a", Groups: []string{"system:open-cluster-management:c2"}}
	const leaseTooLarge, addOnTooLarge, workTooLarge = "Lease c1/l takes", "status.conditions of ManagedClusterAddOn c1/a takes",
		"status of ManifestWork c1/w with 1 manifests takes"
	const requestTooLarge, configsTooLarge = `CertificateSigningRequest "r" takes`,
		`ManagedCluster "c1", its annotations and spec.managedClusterClientConfigs, takes`
	for _, test := range []struct {
		name        string
		who         *user.DefaultInfo
		object, old *unstructured.Unstructured
		subresource string
		refused     string
	}{
		{name: "request of an agent", who: agentOfC1, object: request(t, 8<<10)},
		{name: "large request of an agent", who: agentOfC1, object: request(t, 250_000), refused: requestTooLarge},
		{name: "large request of a joiner", who: joiner, object: request(t, 250_000), refused: requestTooLarge},
		{name: "large request of another", who: sender, object: request(t, 250_000)},
		{name: "client configs of a joiner", who: joiner, object: configs(32 << 10)},
		{name: "large client configs of a joiner", who: joiner, object: configs(1 << 20), refused: configsTooLarge},
		{name: "large client configs of another", who: sender, object: configs(1 << 20)},
		{name: "client configs of an agent", who: agentOfC1, object: configs(32 << 10), old: configs(16)},
		{name: "large client configs of an agent", who: agentOfC1, object: configs(1 << 20), old: configs(16), refused: configsTooLarge},
		{name: "client configs that others made large", who: agentOfC1, object: configs(1 << 20), old: configs(1 << 20)},
		{name: "claims of an agent", who: agentOfC1, object: claims(100_000), old: claims(1), subresource: "status"},
		{name: "large claims of an agent", who: agentOfC1, object: claims(1 << 20), old: claims(1), subresource: "status",
			refused: `status of ManagedCluster "c1" takes`},
		{name: "what the hub says of namespaces", who: agentOfC1, object: namespaces("b", 1<<10), old: namespaces("b", 1), subresource: "status"},
		{name: "namespaces that the hub does not manage", who: agentOfC1, object: namespaces("b", 1), old: claims(1), subresource: "status",
			refused: `status of ManagedCluster "c1" takes`},
		{name: "namespace that the hub does not manage", who: agentOfC1, object: namespaces("b", 1), old: namespaces("c", 1),
			subresource: "status"},
		{name: "large answer about a namespace", who: agentOfC1, object: namespaces("b", 1<<20), old: namespaces("b", 1), subresource: "status",
			refused: `status of ManagedCluster "c1" takes`},
		{name: "Lease of an agent", who: agentOfC1, object: lease(1 << 10), old: lease(1)},
		{name: "large Lease of an agent", who: agentOfC1, object: lease(1 << 20), old: lease(1), refused: leaseTooLarge},
		{name: "large Lease of an add-on", who: addOnOfC1, object: lease(1 << 20), refused: leaseTooLarge},
		{name: "large Lease of an add-on with a token", who: tokenOfC1, object: lease(1 << 20), refused: leaseTooLarge},
		{name: "large Lease of another", who: sender, object: lease(1 << 20), old: lease(1)},
		{name: "large Lease of another cluster", who: agentOfC2, object: lease(1 << 20), old: lease(1)},
		{name: "Lease that others made large", who: agentOfC1, object: lease(1 << 20), old: lease(1 << 20)},
		{name: "status of an add-on", who: agentOfC1, object: addOn(32 << 10), old: addOn(1), subresource: "status"},
		{name: "large status of an add-on", who: agentOfC1, object: addOn(1 << 20), old: addOn(1), subresource: "status", refused: addOnTooLarge},
		{name: "large status of an add-on by its agent", who: addOnOfC1, object: addOn(1 << 20), old: addOn(1), subresource: "status",
			refused: addOnTooLarge},
		{name: "large status of an add-on by its manager", who: sender, object: addOn(1 << 20), old: addOn(1), subresource: "status"},
		{name: "status of a work", who: agentOfC1, object: work(1, 100<<10, ""), old: work(1, 1, ""), subresource: "status"},
		{name: "large status of a work", who: agentOfC1, object: work(1, 1<<20, ""), old: work(1, 1, ""), subresource: "status",
			refused: workTooLarge},
		{name: "large status of a large work", who: agentOfC1, object: work(20, 1<<20, ""), old: work(20, 1, ""), subresource: "status"},
		{name: "large status of a work that asks for values", who: agentOfC1, object: work(1, 1<<20, "{feedbackRules: [{type: JSONPaths}]}"),
			old: work(1, 1, ""), subresource: "status"},
		{name: "large status of a work that asks for conditions", who: agentOfC1, object: work(1, 1<<20, "{conditionRules: [{type: CEL}]}"),
			old: work(1, 1, ""), subresource: "status"},
		{name: "large status of a work that asks for what is known well", who: agentOfC1,
			object: work(1, 1<<20, "{feedbackRules: [{type: WellKnownStatus}]}"), old: work(1, 1, ""), subresource: "status", refused: workTooLarge},
		{name: "annotations of a work", who: agentOfC1, object: annotatedWork(8 << 10), old: annotatedWork(1)},
		{name: "large annotations of a work", who: agentOfC1, object: annotatedWork(17 << 10), old: annotatedWork(1),
			refused: "metadata.annotations of ManifestWork c1/w takes"},
		{name: "large annotations of a work by a service account", who: tokenOfC1, object: annotatedWork(17 << 10), old: annotatedWork(1)},
		{name: "annotations of a work that others made large", who: agentOfC1, object: annotatedWork(17 << 10), old: annotatedWork(17 << 10)},
		{name: "large annotations of a work by another", who: sender, object: annotatedWork(17 << 10), old: annotatedWork(1)},
		{name: "large status of a work by another", who: sender, object: work(1, 1<<20, ""), old: work(1, 1, ""), subresource: "status"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := as(test.who)
			code := int32(0)
			if test.refused != "" {
				code = 413
			}
			checkStatus(t, s.write(t, test.object, test.old, test.subresource), code, test.refused)
		})
	}
}

// plugin is one of the plugins, as an API server has it.
func plugin[T any](t *testing.T, s *server, name string) T {
	t.Helper()
	var found T
	for _, p := range s.plugins(t) {
		if desired, ok := p.Plugin.(T); ok && p.Name == name {
			found = desired
		}
	}
	if any(found) == nil {
		t.Fatalf("there is no plugin %s", name)
	}
	return found
}

func creation(o runtime.Object, resource schema.GroupVersionResource, who user.Info) admission.Attributes {
	return admission.NewAttributesRecord(o, nil, o.GetObjectKind().GroupVersionKind(), "", "", resource, "", admission.Create, nil, false, who)
}

type counting interface {
	admission.ValidationInterface
	SetExternalKubeInformerFactory(factory informers.SharedInformerFactory)
}

// requestValidator returns the plugin for the certificate requests of agents, and what it knows of those that there are.
func requestValidator(t *testing.T, s *server) (validator admission.ValidationInterface, known cache.Indexer) {
	t.Helper()
	counts := plugin[counting](t, s, inprocess.AgentRequestValidating)
	factory := informers.NewSharedInformerFactory(nil, 0)
	counts.SetExternalKubeInformerFactory(factory)
	return counts, factory.Certificates().V1().CertificateSigningRequests().Informer().GetIndexer()
}

// One credential has no more undecided certificate requests than it may; those of others, and those that a user decided on, do not count.
func TestUndecidedRequests(t *testing.T) {
	t.Parallel()
	joiner := newcomers["bootstrap token"]
	for _, test := range []struct {
		name              string
		who               *user.DefaultInfo
		waiting, decided  int
		ofOthers, refused bool
	}{
		{name: "joiner", who: joiner, waiting: 2},
		{name: "joiner with many", who: joiner, waiting: 3, refused: true},
		{name: "joiner with many that are decided", who: joiner, waiting: 2, decided: 5},
		{name: "joiner beside others", who: joiner, waiting: 5, ofOthers: true},
		{name: "agent", who: agentOfC1, waiting: 199},
		{name: "agent with many", who: agentOfC1, waiting: 200, refused: true},
		{name: "another user", who: sender, waiting: 300},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newServer()
			s.options.JoinLimit = 3
			validator, known := requestValidator(t, s)
			for i := range test.waiting + test.decided {
				csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
				if !test.ofOthers {
					csr.Spec.Username = test.who.Name
				}
				if i >= test.waiting {
					csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
				}
				if err := known.Add(csr); err != nil {
					t.Fatal(err)
				}
			}
			err := validator.Validate(t.Context(),
				creation(request(t, 1), certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), test.who), nil)
			code := int32(0)
			if test.refused {
				code = 429
			}
			checkStatus(t, err, code, fmt.Sprintf("user %q has %d requests that nobody has decided on", test.who.Name, test.waiting))
		})
	}
}

// An agent whose requests are approved at once has no more of them than it may, on the API and by gRPC; those of other agents and of who
// joins do not count so.
func TestKeptRequests(t *testing.T) {
	t.Parallel()
	joiner := newcomers["bootstrap token"]
	for name, test := range map[string]struct {
		who, requester *user.DefaultInfo
		onAPI, byGRPC  int
		refused        bool
	}{
		"agent":                                 {agentOfC1, agentOfC1, 1999, 0, false},
		"agent with many":                       {agentOfC1, agentOfC1, 2000, 0, true},
		"agent with many, some of them by gRPC": {agentOfC1, agentOfC1, 1000, 1000, true},
		"agent by gRPC with many":               {grpcServer, agentOfC1, 0, 2000, true},
		"agent beside another with many":        {agentOfC1, &user.DefaultInfo{Name: "system:open-cluster-management:c2:a"}, 2000, 0, false},
		"joiner with many":                      {joiner, joiner, 600, 0, false},
		"another user with many":                {sender, sender, 600, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			validator, known := requestValidator(t, newServer())
			for i := range test.onAPI + test.byGRPC {
				csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
				csr.Spec.Username = test.requester.Name
				if i >= test.onAPI {
					csr.Spec.Username = grpcServer.Name
					csr.Annotations = map[string]string{"open-cluster-management.io/csr-user": test.requester.Name}
				}
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}}
				if err := known.Add(csr); err != nil {
					t.Fatal(err)
				}
			}
			created := request(t, 1)
			if test.who == grpcServer {
				created = csrByGRPC(t, test.requester.Name, "c1", 1)
			}
			code := int32(0)
			if test.refused {
				code = 429
			}
			err := validator.Validate(t.Context(),
				creation(created, certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), test.who), nil)
			checkStatus(t, err, code, fmt.Sprintf("the hub has 2000 requests of user %q", agentOfC1.Name))
		})
	}
}

// One credential has no more clusters that nobody has accepted than it may. A cluster that is accepted does not count any more.
func TestPendingClusters(t *testing.T) {
	t.Parallel()
	joiner := newcomers["bootstrap token"]
	s := as(joiner)
	s.options.JoinLimit = 2
	created := cluster(t, "metadata: {name: c1}")
	checkStatus(t, s.write(t, created, nil, ""), 0, "")
	others := cluster(t, `metadata: {name: c2, labels: {capstan.io/requested-by: system.bootstrap.another}}`)
	second := created.DeepCopy()
	second.SetName("c3")
	create := func(clusters ...runtime.Object) error {
		validator := plugin[clusterCounting](t, s, inprocess.ManagedClusterValidating)
		kinds := map[schema.GroupVersionResource]string{resourceOf(created.GroupVersionKind()): "ManagedClusterList"}
		validator.SetDynamicClient(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, clusters...))
		return validator.Validate(t.Context(), creation(cluster(t, "metadata: {name: c4}"), resourceOf(created.GroupVersionKind()), joiner), nil)
	}
	checkStatus(t, create(created, others), 0, "")
	checkStatus(t, create(created, second, others), 429, `user "system:bootstrap:abcdef" has asked for 2 clusters that nobody has accepted`)

	accepted := second.DeepCopy()
	accepted.Object["spec"] = map[string]any{"hubAcceptsClient": true}
	administrator := newServer("update accept")
	administrator.options.DefaultClusterSet = false
	checkStatus(t, administrator.write(t, accepted, second, ""), 0, "")
	checkStatus(t, create(created, accepted, others), 0, "")
	if accepted.GetAnnotations()["capstan.io/requested-by"] != joiner.Name {
		t.Errorf("who asked is forgotten: %v", accepted.Object["metadata"])
	}
}

// tokenOfBootstrapAccount is a user with one of the tokens that the bootstrap account has.
func tokenOfBootstrapAccount(token string) *user.DefaultInfo {
	who := *newcomers["service account"]
	who.Extra = map[string][]string{"authentication.kubernetes.io/credential-id": {"JTI=" + token}}
	return &who
}

// Many are given tokens of one account. Whoever uses one up leaves the others theirs; and all of them together have an end, too.
func TestOneTokenDoesNotUseUpTheAccount(t *testing.T) {
	t.Parallel()
	s := newServer()
	s.options.JoinLimit, s.options.DefaultClusterSet = 2, false
	requests, clusters := plugin[counting](t, s, inprocess.AgentRequestValidating), []runtime.Object{}
	factory := informers.NewSharedInformerFactory(nil, 0)
	requests.SetExternalKubeInformerFactory(factory)
	known := factory.Certificates().V1().CertificateSigningRequests().Informer().GetIndexer()
	has := func(token string, number int) {
		s.who = tokenOfBootstrapAccount(token)
		for i := range number {
			name := fmt.Sprintf("%s-%d", token, i)
			csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}
			csr.Spec.Username, csr.Spec.Extra = s.who.Name,
				map[string]certificatesv1.ExtraValue{
					"authentication.kubernetes.io/credential-id": s.who.Extra["authentication.kubernetes.io/credential-id"]}
			if err := known.Add(csr); err != nil {
				t.Fatal(err)
			}
			requested := cluster(t, "metadata: {name: "+name+"}")
			checkStatus(t, s.write(t, requested, nil, ""), 0, "")
			clusters = append(clusters, requested)
		}
	}
	expectCreate := func(token string, code int32, refusal string) {
		t.Helper()
		who, kind := tokenOfBootstrapAccount(token), cluster(t, "metadata: {name: any}").GroupVersionKind()
		checkStatus(t, requests.Validate(t.Context(),
			creation(request(t, 1), certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"), who), nil), code, refusal)
		validator := plugin[clusterCounting](t, s, inprocess.ManagedClusterValidating)
		kinds := map[schema.GroupVersionResource]string{resourceOf(kind): "ManagedClusterList"}
		validator.SetDynamicClient(dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, clusters...))
		checkStatus(t, validator.Validate(t.Context(), creation(cluster(t, "metadata: {name: more}"), resourceOf(kind), who), nil), code, refusal)
	}
	has("a", 2)
	expectCreate("a", 429, ` 2 `)
	expectCreate("b", 0, "")
	for _, token := range []string{"c", "d"} {
		has(token, 2)
	}
	has("e", 1)
	expectCreate("b", 0, "")
	has("f", 1)
	expectCreate("b", 429, ` 8 `)
}

type clusterCounting interface {
	admission.ValidationInterface
	SetDynamicClient(client dynamic.Interface)
}

// An agent does not fill the hub with events; those of others, and of other agents, are not limited.
func TestEventsOfAgents(t *testing.T) {
	t.Parallel()
	s := newServer()
	now := clocktesting.NewFakeClock(now)
	s.options.Clock = now
	limiter := plugin[admission.ValidationInterface](t, s, inprocess.AgentEventLimiting)
	send := func(who user.Info, note string) error {
		event := object(t, `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: c1, name: e}, note: "`+note+`"}`)
		return limiter.Validate(t.Context(),
			creation(event, schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}, who), nil)
	}
	for range 200 {
		checkStatus(t, send(agentOfC1, "n"), 0, "")
	}
	checkStatus(t, send(agentOfC1, "n"), 429, "sends more events than the hub keeps")
	checkStatus(t, send(&user.DefaultInfo{Name: "b", Groups: []string{"system:open-cluster-management:c2"}}, "n"), 0, "")
	for range 300 {
		checkStatus(t, send(sender, strings.Repeat("n", 10_000)), 0, "")
	}
	now.Step(time.Second)
	checkStatus(t, send(agentOfC1, strings.Repeat("n", 10_000)), 413, "event c1/e takes")
	checkStatus(t, send(agentOfC1, "n"), 0, "")
	checkStatus(t, send(agentOfC1, "n"), 429, "")
}

// Nobody fills the hub through what the server keeps about an object beside it, whatever the kind; the hub's own may become what they are.
func TestManagedFields(t *testing.T) {
	t.Parallel()
	s := newServer()
	limiter := plugin[admission.ValidationInterface](t, s, inprocess.AgentMetadataLimiting)
	of := func(size int) *unstructured.Unstructured {
		lease := object(t, `{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {namespace: c1, name: managed-cluster-lease}}`)
		entry := metav1.ManagedFieldsEntry{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsV1: metav1.NewFieldsV1(`{"f:a` + strings.Repeat("a", size) + `":{}}`)}
		lease.SetManagedFields([]metav1.ManagedFieldsEntry{entry})
		return lease
	}
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	for _, who := range []user.Info{agentOfC1, newcomers["bootstrap token"]} {
		checkStatus(t, limiter.Validate(t.Context(), creation(of(100_000), leases, who), nil), 0, "")
		checkStatus(t, limiter.Validate(t.Context(), creation(of(300_000), leases, who), nil), 413, "metadata.managedFields takes 3000")
		update := func(before, after int) admission.Attributes {
			return admission.NewAttributesRecord(of(after), of(before), schema.GroupVersionKind{}, "c1", "l", leases, "", admission.Update,
				&metav1.UpdateOptions{}, false, who)
		}
		checkStatus(t, limiter.Validate(t.Context(), update(1000, 300_000), nil), 413, "metadata.managedFields")
		checkStatus(t, limiter.Validate(t.Context(), update(300_000, 300_000), nil), 0, "")
	}
	checkStatus(t, limiter.Validate(t.Context(), creation(of(300_000), leases, sender), nil), 0, "")
}
