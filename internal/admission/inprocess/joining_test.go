package inprocess_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes/fake"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

// newcomers have a bootstrap credential, each in its way.
var newcomers = map[string]*user.DefaultInfo{
	"bootstrap token": {Name: "system:bootstrap:abcdef",
		Groups: []string{"system:bootstrappers", "system:bootstrappers:managedcluster"}},
	"service account":           {Name: "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"},
	"service account elsewhere": {Name: "system:serviceaccount:hub:agent-registration-bootstrap"},
	"service account of before": {Name: "system:serviceaccount:open-cluster-management:cluster-bootstrap"},
}

// as is a server that the user sends requests to. The set default would take a permission that its authorizer does not give.
func as(who *user.DefaultInfo) *server {
	s := newServer()
	s.who = who
	s.options.DefaultClusterSet = false
	return s
}

// RG-05: a joiner does not choose set, labels, taints, finalizers and owners of its ManagedCluster. What it may choose is what agents of
// Open Cluster Management send: the name, client configs and annotations of their prefix, with what the schema fills in.
func TestWhoJoinsAsksForNoMore(t *testing.T) {
	t.Parallel()
	const joins = "has a bootstrap credential and cannot set "
	for _, test := range []struct{ name, more, refused string }{
		{name: "nothing but the name", more: "metadata: {name: c1}"},
		{name: "what the schema fills in", more: "metadata: {name: c1}, spec: {hubAcceptsClient: false, leaseDurationSeconds: 60}"},
		{name: "what agents send", more: `metadata: {name: c1, annotations: {agent.open-cluster-management.io/a: b}},
			spec: {hubAcceptsClient: false, managedClusterClientConfigs: [{url: "https://c1", caBundle: Y2E=}]}`},
		{name: "set", more: "metadata: {name: c1, labels: {cluster.open-cluster-management.io/clusterset: prod}}", refused: joins +
			"metadata.labels"},
		{name: "set default", more: "metadata: {name: c1, labels: {cluster.open-cluster-management.io/clusterset: default}}", refused: joins +
			"metadata.labels"},
		{name: "label", more: "metadata: {name: c1, labels: {env: prod}}", refused: joins + "metadata.labels"},
		{name: "annotation", more: "metadata: {name: c1, annotations: {a: b}}", refused: joins + "metadata.annotations[a]"},
		{name: "another user's name", more: "metadata: {name: c1, annotations: {capstan.io/requested-by: admin}}", refused: joins +
			"metadata.annotations[capstan.io/requested-by]"},
		{name: "finalizer", more: "metadata: {name: c1, finalizers: [a.io/b]}", refused: joins + "metadata.finalizers"},
		{name: "owner", more: "metadata: {name: c1, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]}", refused: joins +
			"metadata.ownerReferences"},
		{name: "taint", more: "metadata: {name: c1}, spec: {taints: [{key: a, effect: NoSelect}]}", refused: joins + "spec.taints"},
		{name: "lease duration", more: "metadata: {name: c1}, spec: {leaseDurationSeconds: 1}", refused: joins + "spec.leaseDurationSeconds"},
		{name: "acceptance", more: "metadata: {name: c1}, spec: {hubAcceptsClient: true}", refused: "cannot update the HubAcceptsClient field"},
	} {
		for credential, who := range newcomers {
			t.Run(test.name+"/"+credential, func(t *testing.T) {
				t.Parallel()
				created := cluster(t, test.more)
				checkForbidden(t, as(who).write(t, created, nil, ""), test.refused)
				if requestedBy := created.GetAnnotations()["capstan.io/requested-by"]; test.refused == "" && requestedBy != who.Name {
					t.Errorf("requested by %q, want %q", requestedBy, who.Name)
				}
			})
		}
	}
}

// Nobody who joins, and no agent, keeps a certificate request from expiring, or its owners from being deleted, also by changing one.
func TestRequestsAreNotHeld(t *testing.T) {
	t.Parallel()
	csr := func(more string) *unstructured.Unstructured {
		return object(t, `{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: r,
			labels: {open-cluster-management.io/cluster-name: c1}`+more+`}}`)
	}
	const finalizer = ", finalizers: [x.io/stay]"
	senders := map[string]*user.DefaultInfo{"agent": agentOfC1,
		"agent through AWS": {Name: "open-cluster-management:c1", Groups: []string{"open-cluster-management:c1"}}}
	maps.Copy(senders, newcomers)
	for name, test := range map[string]struct {
		written, old *unstructured.Unstructured
		refused      string
	}{
		"neither":   {written: csr("")},
		"finalizer": {written: csr(finalizer), refused: "cannot change metadata.finalizers"},
		"owner": {written: csr(", ownerReferences: [{apiVersion: v1, kind: Namespace, name: a, uid: b, blockOwnerDeletion: true}]"),
			refused: "cannot change metadata.ownerReferences"},
		"finalizer added":     {written: csr(finalizer), old: csr(""), refused: "cannot change metadata.finalizers"},
		"finalizer of others": {written: csr(finalizer), old: csr(finalizer)},
	} {
		for credential, who := range senders {
			t.Run(name+"/"+credential, func(t *testing.T) {
				t.Parallel()
				checkForbidden(t, as(who).write(t, test.written.DeepCopy(), test.old.DeepCopy(), ""), test.refused)
			})
		}
		checkStatus(t, newServer().write(t, test.written.DeepCopy(), test.old.DeepCopy(), ""), 0, "")
	}
}

// Nobody who joins, and no agent, gives a certificate request a name that reads like that of an agent, or like several words.
func TestRequestsAreNamedLikeObjects(t *testing.T) {
	t.Parallel()
	senders := map[string]*user.DefaultInfo{"agent": agentOfC1}
	maps.Copy(senders, newcomers)
	for name, refused := range map[string]string{
		"c1-x7k2p":                            "",
		"addon.c1-x":                          "",
		"":                                    "", // the server makes one
		"system:open-cluster-management:c1:a": "cannot set metadata.name",
		"c1 c1-x":                             "cannot set metadata.name",
		"c1\x1b[2K":                           "cannot set metadata.name",
	} {
		csr := request(t, 1)
		csr.SetName(name)
		for _, who := range senders {
			checkForbidden(t, as(who).write(t, csr.DeepCopy(), nil, ""), refused)
			checkStatus(t, as(who).write(t, csr.DeepCopy(), csr.DeepCopy(), ""), 0, "")
		}
		checkStatus(t, newServer().write(t, csr.DeepCopy(), nil, ""), 0, "")
	}
}

// Everybody else who may create ManagedClusters creates what they like, in nobody's name.
func TestAdministratorsCreateAnyCluster(t *testing.T) {
	t.Parallel()
	created := cluster(t, `metadata: {name: c1, labels: {env: prod}, annotations: {a: b}, finalizers: [a.io/b]}, spec: {leaseDurationSeconds: 1}`)
	want := created.DeepCopy()
	s := newServer()
	s.options.DefaultClusterSet = false
	s.namespace = corev1.Namespace{Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	checkStatus(t, s.write(t, created, nil, ""), 0, "")
	if diff := cmp.Diff(want.Object, created.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// RG-16: a joiner does not take a tenant's namespace as its name; that of a cluster which had the name before is free.
func TestWhoJoinsTakesNoNamespace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		labels map[string]string
		code   int32
	}{
		{name: "a tenant's", labels: map[string]string{"team": "a"}, code: 403},
		{name: "another cluster's", labels: map[string]string{"open-cluster-management.io/cluster-name": "c2"}, code: 403},
		{name: "its own", labels: map[string]string{"open-cluster-management.io/cluster-name": "c1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := as(newcomers["bootstrap token"])
			s.namespace.Labels, s.namespace.Status.Phase = test.labels, corev1.NamespaceActive
			checkStatus(t, s.write(t, cluster(t, "metadata: {name: c1}"), nil, ""), test.code,
				`cannot take the name "c1": the hub has a namespace of this name that is no cluster's`)
		})
	}
}

// RG-16: where the server's cache has no namespace of the name, none is read; one that it has is read as it is now.
func TestNamespaceOfTheCache(t *testing.T) {
	t.Parallel()
	tenants := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c1", Labels: map[string]string{"team": "a"}},
		Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
	before := tenants.DeepCopy()
	before.Labels = map[string]string{"open-cluster-management.io/cluster-name": "c1"}
	for name, test := range map[string]struct {
		cached []runtime.Object
		code   int32
	}{
		"none":                 {nil, 0},
		"another":              {[]runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "c2"}}}, 0},
		"as it was before":     {[]runtime.Object{before}, 403},
		"as it is, a tenant's": {[]runtime.Object{&tenants}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := as(newcomers["bootstrap token"])
			s.namespace = tenants
			validator := plugin[counting](t, s, inprocess.ManagedClusterValidating)
			factory := informers.NewSharedInformerFactory(clientset.NewClientset(test.cached...), 0)
			validator.SetExternalKubeInformerFactory(factory)
			created := cluster(t, "metadata: {name: c1}")
			request := creation(created, resourceOf(created.GroupVersionKind()), s.who)
			checkStatus(t, validator.Validate(t.Context(), request, nil), 403, "namespace of this name") // the cache is not filled yet
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			checkStatus(t, validator.Validate(t.Context(), request, nil), test.code, "namespace of this name")
		})
	}
}

// A webhook that labels new clusters has the server call the plugins again; what the hub itself put there does not count as the joiner's.
func TestWhoJoinsIsJudgedOnce(t *testing.T) {
	t.Parallel()
	s := as(newcomers["bootstrap token"])
	created := cluster(t, "metadata: {name: c1}")
	request := admission.NewAttributesRecord(created, nil, created.GroupVersionKind(), "", "c1", resourceOf(created.GroupVersionKind()), "",
		admission.Create, nil, false, s.who)
	for _, plugin := range s.plugins(t) {
		mutating, ok := plugin.Plugin.(admission.MutationInterface)
		if !ok {
			continue
		}
		checkStatus(t, mutating.Admit(t.Context(), request, nil), 0, "")
		created.SetLabels(map[string]string{"env": "prod"})
		request.GetReinvocationContext().SetIsReinvoke()
		checkStatus(t, mutating.Admit(t.Context(), request, nil), 0, "")
	}
	if created.GetLabels()["env"] != "prod" || created.GetAnnotations()["capstan.io/requested-by"] == "" {
		t.Errorf("created with %v", created.Object["metadata"])
	}
}
