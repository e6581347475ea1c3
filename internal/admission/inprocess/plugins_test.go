package inprocess_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/admission/inprocess"
)

var now = time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC)

// sender has all that identifies a user, so that a test notices what is not forwarded.
var sender = &user.DefaultInfo{Name: "ann", UID: "7", Groups: []string{"team"}, Extra: map[string][]string{"scope": {"x"}}}

// fakeAuthorizer allows the verbs it lists to sender alone.
type fakeAuthorizer struct {
	verbs    []string
	reviewed []authorizer.AttributesRecord
}

func (f *fakeAuthorizer) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	f.reviewed = append(f.reviewed, a.(authorizer.AttributesRecord))
	if cmp.Equal(a.GetUser(), user.Info(sender)) && slices.Contains(f.verbs, a.GetVerb()+" "+a.GetSubresource()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "no rule", nil
}

// fakeClient has the namespace c1, or none if that has no phase, and an API with the cluster of the server; no other call works.
type (
	fakeClient struct {
		kubernetes.Interface
		namespace corev1.Namespace
		clusters  rest.Interface
	}
	fakeCore struct {
		corev1client.CoreV1Interface
		namespace corev1.Namespace
		clusters  rest.Interface
	}
	fakeNamespaces struct {
		corev1client.NamespaceInterface
		namespace corev1.Namespace
	}
)

func (f fakeClient) CoreV1() corev1client.CoreV1Interface {
	return fakeCore{namespace: f.namespace, clusters: f.clusters}
}

func (f fakeCore) RESTClient() rest.Interface { return f.clusters }

func (f fakeCore) Namespaces() corev1client.NamespaceInterface {
	return fakeNamespaces{namespace: f.namespace}
}

func (f fakeNamespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	if name != "c1" || f.namespace.Status.Phase == "" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	return f.namespace.DeepCopy(), nil
}

// server has what an API server hands to admission plugins.
type server struct {
	authorizer fakeAuthorizer
	namespace  corev1.Namespace
	// cluster is the ManagedCluster c1, as JSON; there is none if it is empty.
	cluster string
	// cachedCluster is what the API server's cache still has of it, if it is behind.
	cachedCluster string
	// bindings are ManagedClusterSetBindings, as JSON.
	bindings string
	// addOns are objects of the group of add-ons, as JSON, by resource and name, such as addontemplates/hello.
	addOns  map[string]string
	options inprocess.Options
	// who sends the requests; sender, if nil.
	who *user.DefaultInfo
}

func (s *server) sender() *user.DefaultInfo {
	if s.who != nil {
		return s.who
	}
	return sender
}

// plugins initialises the plugins the way an API server does.
func (s *server) plugins(t *testing.T) []inprocess.Plugin {
	t.Helper()
	plugins := inprocess.Plugins(s.options)
	for _, plugin := range plugins {
		if wants, ok := plugin.Plugin.(initializer.WantsUnconditionalAuthorizer); ok {
			wants.SetUnconditionalAuthorizer(&s.authorizer)
		}
		if wants, ok := plugin.Plugin.(initializer.WantsExternalKubeClientSet); ok {
			wants.SetExternalKubeClientSet(fakeClient{namespace: s.namespace, clusters: s.api(t).CoreV1().RESTClient()})
		}
		if err := admission.ValidateInitialization(plugin.Plugin); err != nil {
			t.Fatalf("%s: %v", plugin.Name, err)
		}
	}
	return plugins
}

// write sends an object through mutation, then validation, as the creation of it or the update of old. What has webhooks
// goes through these as well, and must come out the same.
func (s *server) write(t *testing.T, object, old *unstructured.Unstructured, subresource string) error {
	t.Helper()
	original := object.DeepCopy()
	err := s.writeInProcess(t, object, old, subresource)
	if subresource == "" && webhookPaths[object.GetKind()] != nil || subresource == "status" && statusWebhookPaths[object.GetKind()] != nil {
		s.compare(t, original, old, object, subresource, err)
	}
	return err
}

func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	return kind.GroupVersion().WithResource(strings.ToLower(kind.Kind) + "s")
}

func (s *server) writeInProcess(t *testing.T, object, old *unstructured.Unstructured, subresource string) error {
	t.Helper()
	operation, before := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, before = admission.Update, old
	}
	kind := object.GroupVersionKind()
	request := admission.NewAttributesRecord(object, before, kind, object.GetNamespace(), object.GetName(), resourceOf(kind), subresource,
		operation, nil, false, s.sender())
	plugins, ctx := s.plugins(t), context.Background()
	for _, plugin := range plugins {
		if !plugin.Plugin.Handles(operation) {
			t.Errorf("%s does not handle %s", plugin.Name, operation)
		}
		if mutating, ok := plugin.Plugin.(admission.MutationInterface); ok {
			if err := mutating.Admit(ctx, request, nil); err != nil {
				return err
			}
		}
	}
	for _, plugin := range plugins {
		if validating, ok := plugin.Plugin.(admission.ValidationInterface); ok {
			if err := validating.Validate(ctx, request, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func newServer(verbs ...string) *server {
	options := inprocess.DefaultOptions()
	options.Clock = clocktesting.NewFakePassiveClock(now)
	return &server{authorizer: fakeAuthorizer{verbs: verbs}, options: options}
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	encoded, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(encoded, &object.Object); err != nil {
		t.Fatal(err)
	}
	return object
}

func cluster(t *testing.T, more string) *unstructured.Unstructured {
	t.Helper()
	return object(t, "{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, "+more+"}")
}

// checkForbidden checks that a write is refused with a text, or not at all without one.
func checkForbidden(t *testing.T, err error, text string) {
	t.Helper()
	code := int32(0)
	if text != "" {
		code = http.StatusForbidden
	}
	checkStatus(t, err, code, text)
}

func checkStatus(t *testing.T, err error, code int32, text string) {
	t.Helper()
	if code == 0 {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	status, ok := err.(apierrors.APIStatus)
	if !ok || status.Status().Code != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want status %d and %q", err, code, text)
	}
}

// SC-13
func TestPluginNames(t *testing.T) {
	t.Parallel()
	var names []string
	for _, plugin := range inprocess.Plugins(inprocess.DefaultOptions()) {
		names = append(names, plugin.Name)
	}
	want := []string{"ManagedClusterMutating", "HubTypeValidating", "ManagedClusterValidating", "ManagedClusterSetValidating",
		"ManagedClusterSetBindingValidating", "PlacementValidating", "ManifestWorkValidating",
		"ManifestWorkReplicaSetValidating", "ClusterManagementAddOnValidating", "ManagedClusterAddOnValidating", "AddOnTemplateValidating",
		"AgentRequestValidating", "AgentLeaseValidating", "AgentSecretValidating", "AgentEventLimiting", "AgentMetadataLimiting"}
	if !slices.Equal(names, want) {
		t.Errorf("plugins are %q, want %q", names, want)
	}
}

func TestPluginsRefuseToRunUninitialised(t *testing.T) {
	t.Parallel()
	for _, plugin := range inprocess.Plugins(inprocess.DefaultOptions()) {
		if _, wantsAuthorizer := plugin.Plugin.(initializer.WantsUnconditionalAuthorizer); !wantsAuthorizer {
			continue
		}
		if err := admission.ValidateInitialization(plugin.Plugin); err == nil {
			t.Errorf("%s runs without an authorizer", plugin.Name)
		}
	}
}

// WH-01, WH-03: only the times and the label change in the object of the request.
func TestManagedClusterIsCompleted(t *testing.T) {
	t.Parallel()
	got := cluster(t, `metadata: {name: c1, labels: {a: b}},
		spec: {leaseDurationSeconds: 60, unknown: {x: 1}, taints: [{key: k, effect: NoSelect, unknown: 2, timeAdded: null}]}, status: {x: y}`)
	checkStatus(t, newServer("create join").write(t, got, nil, ""), 0, "")
	want := cluster(t, `metadata: {name: c1, labels: {a: b, cluster.open-cluster-management.io/clusterset: default}},
		spec: {leaseDurationSeconds: 60, unknown: {x: 1}, taints: [{key: k, effect: NoSelect, unknown: 2, timeAdded: "2026-11-21T04:30:00Z"}]},
		status: {x: y}`)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// RG-28 RG-44: where the hub's controllers run, a new cluster has their taint and their finalizer, too, even one without a spec.
func TestNewClusterIsPrepared(t *testing.T) {
	t.Parallel()
	s := newServer("create join")
	s.options.Taint, s.options.Finalizer = true, "a.io/cleanup"
	const labels = "labels: {cluster.open-cluster-management.io/clusterset: default}"
	const unreachable = `{key: cluster.open-cluster-management.io/unreachable, effect: NoSelect, timeAdded: "2026-11-21T04:30:00Z"}`
	for sent, stored := range map[string]string{
		"metadata: {name: c1}": "metadata: {name: c1, finalizers: [a.io/cleanup], " + labels + "}, spec: {taints: [" + unreachable + "]}",
		"metadata: {name: c1, finalizers: [a.io/own]}, spec: {unknown: 1, taints: [{key: k, effect: NoSelect, unknown: 2}]}": "metadata: " +
			"{name: c1, finalizers: [a.io/own, a.io/cleanup], " + labels + "}, spec: {unknown: 1, taints: [{key: k, effect: NoSelect, unknown: 2, " +
			`timeAdded: "2026-11-21T04:30:00Z"}, ` + unreachable + "]}",
	} {
		got := cluster(t, sent)
		checkStatus(t, s.write(t, got, nil, ""), 0, "")
		if diff := cmp.Diff(cluster(t, stored).Object, got.Object); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sent, diff)
		}
	}
}

// WH-02
func TestManagedClusterUpdate(t *testing.T) {
	t.Parallel()
	const head = `metadata: {name: c1, labels: {cluster.open-cluster-management.io/clusterset: default}}, `
	old := cluster(t, head+`spec: {taints: [{key: k, effect: NoSelect, timeAdded: "2026-01-01T00:00:00Z"}]}`)
	got := cluster(t, head+`spec: {taints: [{key: k, effect: NoSelect, timeAdded: "2026-01-01T00:00:00Z"}, {key: l, effect: NoSelect}]}`)
	checkStatus(t, newServer().write(t, got, old, ""), 0, "")
	want := cluster(t, head+`spec: {taints: [{key: k, effect: NoSelect, timeAdded: "2026-01-01T00:00:00Z"},
		{key: l, effect: NoSelect, timeAdded: "2026-11-21T04:30:00Z"}]}`)
	if diff := cmp.Diff(want.Object, got.Object); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	forged := cluster(t, head+`spec: {taints: [{key: k, effect: NoSelect, timeAdded: "2025-01-01T00:00:00Z"}]}`)
	checkStatus(t, newServer().write(t, forged, old, ""), 400, `taint "k"`)
	forged = cluster(t, head+`spec: {taints: [{key: k, effect: NoSelect, timeAdded: "2025-01-01T00:00:00Z"}]}, status: {conditions: 5}`)
	checkStatus(t, newServer().write(t, forged, old, ""), 400, `taint "k"`)
}

// WH-04 to WH-07
func TestManagedClusterIsValidated(t *testing.T) {
	t.Parallel()
	const inSet = `labels: {cluster.open-cluster-management.io/clusterset: prod}`
	accepted := cluster(t, `metadata: {name: c1, `+inSet+`}, spec: {hubAcceptsClient: true}`)
	for _, test := range []struct {
		name   string
		server *server
		object *unstructured.Unstructured
		old    *unstructured.Unstructured
		code   int32
		text   string
	}{
		{name: "all allowed", server: newServer("create join", "update accept"), object: accepted},
		{name: "may not accept", server: newServer("create join"), object: accepted, code: 403, text: "HubAcceptsClient"},
		{name: "may not join", server: newServer("update accept"), object: accepted, code: 403, text: `ManagedClusterSet "prod"`},
		{name: "may not join the default set", server: newServer(), object: cluster(t, `metadata: {name: c1}, spec: {hubAcceptsClient: false}`),
			code: 403, text: `ManagedClusterSet "default"`},
		{name: "stays accepted", server: newServer(), object: accepted, old: accepted},
		{name: "name", server: newServer("create join"), object: cluster(t, `metadata: {name: c.1}, spec: {}`), code: 400, text: "metadata.name"},
		{name: "unreadable", server: newServer("create join"), object: cluster(t, `metadata: {name: c1}, spec: {taints: 5}`), code: 400,
			text: `ManagedCluster "c1" is invalid: spec.taints`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			old := test.old
			if old != nil {
				old = old.DeepCopy()
			}
			checkStatus(t, test.server.write(t, test.object.DeepCopy(), old, ""), test.code, test.text)
		})
	}
}

// WH-06
func TestTerminatingNamespace(t *testing.T) {
	t.Parallel()
	for phase, code := range map[corev1.NamespacePhase]int32{"": 0, corev1.NamespaceActive: 0, corev1.NamespaceTerminating: 403} {
		s := newServer("create join", "update accept")
		s.namespace.Status.Phase = phase
		checkStatus(t, s.write(t, cluster(t, `metadata: {name: c1}, spec: {hubAcceptsClient: true}`), nil, ""), code, "is being deleted")
	}
}

// WH-05, WH-15: the authorizer sees the whole identity and the virtual resource.
func TestQuestionsToTheAuthorizer(t *testing.T) {
	t.Parallel()
	s := newServer("create join", "update accept")
	s.options.DefaultClusterSet = false
	checkStatus(t, s.write(t, cluster(t, `metadata: {name: c1}, spec: {hubAcceptsClient: true}`), nil, ""), 0, "")
	want := []authorizer.AttributesRecord{{
		User: sender, Verb: "update", APIGroup: "register.open-cluster-management.io", APIVersion: "*",
		Resource: "managedclusters", Subresource: "accept", Name: "c1", ResourceRequest: true,
	}}
	if diff := cmp.Diff(want, s.authorizer.reviewed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A value that the schema of a CRD lets pass and no client can read is refused wherever it is written, with the field
// and the value; what an update leaves as it was is not.
func TestUnreadableValuesAreRefused(t *testing.T) {
	t.Parallel()
	const taint = `metadata: {name: c1}, spec: {hubAcceptsClient: false, taints: [{key: a, effect: NoSelect, timeAdded: null}, {key: b, effect: NoSelect, timeAdded: "2026-01-01t00:00:00z"}]}`
	set := object(t, `{apiVersion: work.open-cluster-management.io/v1alpha1, kind: ManifestWorkReplicaSet, metadata: {name: s, namespace: d},
		spec: {placementRefs: [{name: p, rolloutStrategy: {type: All, all: {maxFailures: 99999999999}}}]}}`)
	config := func(version, resources string) *unstructured.Unstructured {
		return object(t, `{apiVersion: addon.open-cluster-management.io/`+version+
			`, kind: AddOnDeploymentConfig, metadata: {name: a, namespace: d},
			spec: {customizedVariables: [{name: A, value: "1e-10000000"}], resourceRequirements: [{containerID: "*:*:*", resources: `+resources+
			`}]}}`)
	}
	for _, test := range []struct {
		name        string
		object, old *unstructured.Unstructured
		subresource string
		text        string
	}{
		{name: "quantity that takes long to read", subresource: "status",
			object: cluster(t, `metadata: {name: c1}, status: {allocatable: {cpu: "1e-10000000"}}`),
			text:   `status.allocatable.cpu: Invalid value: "1e-10000000": the quantity "1e-10000000" has too large an exponent; the limit is 100`},
		{name: "quantity in space", subresource: "status",
			object: cluster(t, `metadata: {name: c1}, status: {capacity: {cpu: " 1e-10000000 "}}`),
			text:   `status.capacity.cpu: Invalid value: " 1e-10000000 "`},
		{name: "limit that takes long to read", object: config("v1beta1", `{limits: {cpu: "1000000000000000000001e3000000"}}`),
			text: `spec.resourceRequirements[0].resources.limits.cpu: Invalid value: "1000000000000000000001e3000000": the quantity`},
		{name: "request that takes long to read", object: config("v1alpha1", `{requests: {example.com/gpu: "1e-10000000"}}`),
			text: `spec.resourceRequirements[0].resources.requests[example.com/gpu]: Invalid value: "1e-10000000": the quantity`},
		{name: "long quantity", object: config("v1beta1", `{limits: {cpu: "`+strings.Repeat("1", 65)+`"}}`),
			text: "a quantity: it has 65 bytes; the limit is 64 bytes"},
		{name: "quantities that people write",
			object: config("v1beta1", `{limits: {cpu: 100m, memory: 5Gi, a: 1E, b: 2Ei, c: "1e-100", d: "1E+6", e: 5, f: "0.5"}}`)},
		{name: "quantity", subresource: "status",
			object: cluster(t, `metadata: {name: c1}, status: {capacity: {memory: 5Gi, cpu: 1e99999999999999999999}}`),
			text:   "status.capacity.cpu: Invalid value: \"1e99999999999999999999\""},
		{name: "quantity with a domain", subresource: "status",
			object: cluster(t, `metadata: {name: c1}, status: {capacity: {example.com/gpu: x}}`),
			text:   "status.capacity[example.com/gpu]"},
		{name: "date of a taint", object: cluster(t, taint), text: `spec.taints[1].timeAdded: Invalid value: "2026-01-01t00:00:00z"`},
		{name: "date of a condition", subresource: "status",
			object: object(t, `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w, namespace: c1},
				status: {conditions: [{type: Applied, lastTransitionTime: "2026-01-01t00:00:00z"}]}}`),
			text: "status.conditions[0].lastTransitionTime"},
		{name: "number", object: set, text: "spec.placementRefs[0].rolloutStrategy.all.maxFailures: Invalid value: 99999999999"},
		{name: "seconds", object: cluster(t, `metadata: {name: c1}, spec: {leaseDurationSeconds: 3000000000}`),
			text: "spec.leaseDurationSeconds"},
		{name: "unchanged", object: set, old: set},
		{name: "of another part", object: cluster(t, `metadata: {name: c1}, spec: {}, status: {capacity: {cpu: x}}`)},
		{name: "of another part, too", subresource: "status", object: cluster(t, taint)},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			code := int32(400)
			if test.text == "" {
				code = 0
			}
			var old *unstructured.Unstructured
			if test.old != nil {
				old = test.old.DeepCopy()
			}
			checkStatus(t, newServer("create join").write(t, test.object.DeepCopy(), old, test.subresource), code, test.text)
		})
	}
}

// WH-15: status and other kinds are nobody's business here.
func TestOtherRequestsPass(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, text, subresource string }{
		{"status of a cluster", `{apiVersion: cluster.open-cluster-management.io/v1, kind: ManagedCluster, metadata: {name: c.1}}`, "status"},
		{"status of a work", `{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork, metadata: {name: w}}`, "status"},
		{"status of a binding", `{apiVersion: cluster.open-cluster-management.io/v1beta2, kind: ManagedClusterSetBinding, metadata: {name: b}}`,
			"status"},
		{"another kind", `{apiVersion: example.com/v1, kind: ManagedCluster, metadata: {name: c.1}}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, want := object(t, test.text), object(t, test.text)
			checkStatus(t, newServer().write(t, got, nil, test.subresource), 0, "")
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, plugin := range inprocess.Plugins(inprocess.DefaultOptions()) {
		deletions := plugin.Name == inprocess.ManagedClusterSetValidating
		if plugin.Plugin.Handles(admission.Delete) != deletions || plugin.Plugin.Handles(admission.Connect) {
			t.Errorf("%s handles more than writes", plugin.Name)
		}
	}
}

// WH-08, WH-09
func TestBindingIsValidated(t *testing.T) {
	t.Parallel()
	binding := func(set string) *unstructured.Unstructured {
		return object(t, `{apiVersion: cluster.open-cluster-management.io/v1beta2, kind: ManagedClusterSetBinding,
			metadata: {name: prod, namespace: team}, spec: {clusterSet: `+set+`}}`)
	}
	checkStatus(t, newServer("create bind").write(t, binding("prod"), nil, ""), 0, "")
	checkStatus(t, newServer().write(t, binding("prod"), nil, ""), 403, `bind cluster set "prod"`)
	checkStatus(t, newServer().write(t, binding("prod"), binding("prod"), ""), 0, "")
	checkStatus(t, newServer().write(t, binding("test"), binding("prod"), ""), 400, "same name")
}

// WH-10, WH-11
func TestWorkIsValidated(t *testing.T) {
	t.Parallel()
	const bot = `, executor: {subject: {type: ServiceAccount, serviceAccount: {namespace: apps, name: bot}}}`
	work := func(name, manifest, more string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{apiVersion: work.open-cluster-management.io/v1, kind: ManifestWork,
			metadata: {name: %s, namespace: c1}, spec: {workload: {manifests: [%s]}%s}}`, name, manifest, more))
	}
	const good = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: apps}}`
	checkStatus(t, newServer().write(t, work("w", good, ""), nil, ""), 0, "")
	checkStatus(t, newServer().write(t, work("w", good+","+good, ""), nil, ""), 400, "duplicate of manifest 0")
	checkStatus(t, newServer().write(t, work("w", good+","+good, ""), work("w", good, ""), ""), 400, "duplicate of manifest 0")
	checkStatus(t, newServer().write(t, work("w", "", ""), work("w", "", ""), ""), 0, "")
	checkStatus(t, newServer().write(t, work("w", good, bot), nil, ""), 400, "system:serviceaccount:apps:bot")
	checkStatus(t, newServer("execute-as ").write(t, work("w", good, bot), nil, ""), 0, "")

	small := newServer()
	small.options.ManifestWork.Limit = 70
	checkStatus(t, small.write(t, work("w", good, ""), nil, ""), 400, "the limit is 70 bytes")
}
