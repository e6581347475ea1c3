package registration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// WH-01 to WH-05, WH-07: the rules hold on the hub itself, and ask its own authorizer about who sent the request.
func TestClustersAreAdmitted(t *testing.T) {
	t.Parallel()
	admin := framework.Hub.Client(t)
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	newcomer := rest.CopyConfig(config)
	newcomer.Impersonate = rest.ImpersonationConfig{UserName: "newcomer", Groups: []string{fleet.GroupBootstrap, fleet.GroupAuthenticated}}
	agent := env.ClientFor(t, newcomer)

	cluster := func(name string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	accepted := cluster("admitted")
	accepted.Spec.HubAcceptsClient = true
	framework.ExpectRefusal(t, agent.Create(t.Context(), accepted), apierrors.IsForbidden,
		`user "newcomer" cannot update the HubAcceptsClient field`)
	framework.ExpectRefusal(t, agent.Create(t.Context(), cluster("admitted.twice")), apierrors.IsBadRequest, "metadata.name")

	created := cluster("admitted")
	created.Spec.ManagedClusterClientConfigs = []clusterv1.ClientConfig{{URL: "http://admitted"}}
	framework.ExpectRefusal(t, agent.Create(t.Context(), created), apierrors.IsBadRequest, "spec.managedClusterClientConfigs[0].url")
	created.Spec.ManagedClusterClientConfigs = nil
	framework.Create(t, agent, created)
	if created.Labels[fleet.LabelClusterSet] != "default" || created.Annotations[fleet.AnnotationRequestedBy] != "newcomer" {
		t.Errorf("created with labels %v and annotations %v, want the set default and who asks", created.Labels, created.Annotations)
	}
	created = cluster("admitted-tainted")
	created.Spec.Taints = []clusterv1.Taint{{Key: "a", Effect: clusterv1.TaintEffectNoSelect}}
	framework.ExpectRefusal(t, agent.Create(t.Context(), created.DeepCopy()), apierrors.IsForbidden, "spec.taints")
	framework.Create(t, admin, created)
	if created.Labels[fleet.LabelClusterSet] != "default" || created.Spec.Taints[0].TimeAdded.IsZero() {
		t.Errorf("created with labels %v and taints %v, want the set default and a time", created.Labels, created.Spec.Taints)
	}

	forged := created.DeepCopy()
	forged.Spec.Taints[0].TimeAdded = metav1.Unix(0, 0)
	framework.ExpectRefusal(t, admin.Patch(t.Context(), forged, client.MergeFrom(created)), apierrors.IsBadRequest, `TimeAdded of taint "a"`)
}

// Who joins does not fill the hub: a certificate request has its size, and one credential has so many requests and clusters that wait. Nor
// does it take the namespace of a tenant.
func TestJoiningIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 2
	own := env.StartHub(t, "none", fmt.Sprintf("--join-limit=%d", limit))
	admin, joiner := own.Client(t), env.ClientFor(t, withToken(t, own, own.BootstrapToken(t)))
	cluster := func(name string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	request := func() *certificatesv1.CertificateSigningRequest {
		csr, _ := framework.NewRequest(t, framework.AgentSubject("c", "agent"), framework.OfCluster("c"))
		return csr
	}
	framework.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}})
	env.Eventually(t, func(ctx context.Context) error { // as soon as the hub's admission has seen it
		if err := joiner.Create(ctx, cluster("tenant"), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		return nil
	})
	framework.ExpectRefusal(t, joiner.Create(t.Context(), cluster("tenant")), apierrors.IsForbidden, "namespace of this name")

	for i := range limit {
		framework.Create(t, joiner, cluster(fmt.Sprintf("bounded-%d", i)))
	}
	refusal := awaitTooMany(t, joiner, cluster("bounded-more"))
	framework.ExpectRefusal(t, refusal, apierrors.IsTooManyRequests, "--join-limit")
	acceptOneAsAdvised(t, admin, refusal, "bounded-")
	env.Eventually(t, func(ctx context.Context) error { return joiner.Create(ctx, cluster("bounded-more")) })

	large := request()
	large.Annotations = map[string]string{"a": strings.Repeat("x", 200_000)}
	framework.ExpectRefusal(t, joiner.Create(t.Context(), large), apierrors.IsRequestEntityTooLargeError, "CertificateSigningRequest")
	for range limit {
		framework.Create(t, joiner, request())
	}
	framework.ExpectRefusal(t, awaitTooMany(t, joiner, request()), apierrors.IsTooManyRequests, "nobody has decided on")
}

// acceptOneAsAdvised accepts the first of the clusters that the refusal of another one says how to list. The names of these have a prefix.
func acceptOneAsAdvised(t *testing.T, admin client.Client, refusal error, prefix string) {
	t.Helper()
	advised := framework.Advised(t, refusal.Error(), "get managedclusters -l ")
	selector, err := labels.Parse(advised[len(advised)-1])
	if err != nil {
		t.Fatal(err)
	}
	waiting := &clusterv1.ManagedClusterList{}
	if err := admin.List(t.Context(), waiting, client.MatchingLabelsSelector{Selector: selector}); err != nil || len(waiting.Items) == 0 {
		t.Fatalf("%s selects %d clusters: %v", selector, len(waiting.Items), err)
	}
	for _, c := range waiting.Items {
		if !strings.HasPrefix(c.Name, prefix) {
			t.Errorf("%s selects cluster %s", selector, c.Name)
		}
	}
	framework.MergePatch(t, admin, &waiting.Items[0], `{"spec":{"hubAcceptsClient":true}}`)
}

// awaitTooMany waits until a new object is refused because there are too many, and returns that refusal. Objects are counted as soon as the
// hub has seen them come.
func awaitTooMany(t *testing.T, c client.Client, object client.Object) (refusal error) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		another := object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of its original
		if refusal = c.Create(ctx, another, client.DryRunAll); !apierrors.IsTooManyRequests(refusal) {
			return fmt.Errorf("one more %s is not one too many: %w", object.GetName(), refusal)
		}
		return nil
	})
	return refusal
}

// Tokens of the account that agents join with are told apart by what the API server notes down of them, on ManagedClusters and requests.
func TestJoiningIsBoundedForEachToken(t *testing.T) {
	t.Parallel()
	const limit = 2
	own := env.StartHub(t, "none", fmt.Sprintf("--join-limit=%d", limit))
	admin := own.Client(t)
	greedy, another := env.ClientFor(t, withToken(t, own, bootstrapAccountToken(t, own))),
		env.ClientFor(t, withToken(t, own, bootstrapAccountToken(t, own)))
	cluster := func(name string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for i := range limit {
		framework.Create(t, greedy, cluster(fmt.Sprintf("greedy-%d", i)))
	}
	refusal := awaitTooMany(t, greedy, cluster("greedy-more"))
	framework.ExpectRefusal(t, refusal, apierrors.IsTooManyRequests, "--join-limit", fleet.LabelRequestedWith)
	framework.Create(t, another, cluster("another"))

	request := func(cluster string) *certificatesv1.CertificateSigningRequest {
		csr, _ := framework.NewRequest(t, framework.AgentSubject(cluster, "agent"), framework.OfCluster(cluster))
		return csr
	}
	for i := range limit {
		framework.Create(t, greedy, request(fmt.Sprintf("greedy-%d", i)))
	}
	framework.ExpectRefusal(t, awaitTooMany(t, greedy, request("greedy-0")), apierrors.IsTooManyRequests, "nobody has decided on")
	framework.Create(t, another, request("another"))

	acceptOneAsAdvised(t, admin, refusal, "greedy-")
	env.Eventually(t, func(ctx context.Context) error { return greedy.Create(ctx, cluster("greedy-more")) })
}

// RG-16: a cluster cannot take a name whose group or roles all clusters share.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"managed-clusters", "cluster-proxy", "registration", "work"} {
		err := framework.Hub.Client(t).Create(t.Context(), &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}})
		framework.ExpectRefusal(t, err, apierrors.IsBadRequest, "metadata.name", name, "reserved")
	}
}

// What no client could read is not stored, whichever client writes it and wherever: an agent that reports nonsense must not be able to
// stop the controllers of the hub, which read all clusters at once.
func TestUnreadableObjectsAreNotStored(t *testing.T) {
	t.Parallel()
	const name = "unreadable"
	agent := env.ClientFor(t, env.Join(t, framework.Hub, framework.Managed, name).HubConfig(t))
	admin := framework.Hub.Client(t)
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	merge := func(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }
	framework.ExpectRefusal(t, agent.Status().Patch(t.Context(), cluster.DeepCopy(),
		merge(`{"status":{"capacity":{"cpu":"1e99999999999999999999"}}}`)),
		apierrors.IsInvalid, "status.capacity.cpu", "1e99999999999999999999")
	framework.ExpectRefusal(t, agent.Status().Patch(t.Context(), cluster.DeepCopy(), merge(`{"status":{"conditions":[
		{"type":"Joined","status":"True","reason":"R","message":"","lastTransitionTime":"2026-01-01t00:00:00z"}]}}`)),
		apierrors.IsBadRequest, "status.conditions[0].lastTransitionTime", "2026-01-01t00:00:00z")
	framework.ExpectRefusal(t, admin.Patch(t.Context(), cluster.DeepCopy(),
		merge(`{"spec":{"taints":[{"key":"a","effect":"NoSelect","timeAdded":"2026-01-01t00:00:00z"}]}}`)),
		apierrors.IsBadRequest, "spec.taints[0].timeAdded")
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
		"metadata": map[string]any{"namespace": "default", "name": name},
		"spec": map[string]any{
			"placementRefs": []any{map[string]any{"name": "p",
				"rolloutStrategy": map[string]any{"type": "All", "all": map[string]any{"maxFailures": int64(99999999999)}}}},
			"manifestWorkTemplate": map[string]any{"workload": map[string]any{"manifests": []any{map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}}}}},
		},
	}}
	framework.ExpectRefusal(t, admin.Create(t.Context(), set), apierrors.IsBadRequest, "spec.placementRefs[0].rolloutStrategy.all.maxFailures",
		"99999999999")
	if err := admin.List(t.Context(), &clusterv1.ManagedClusterList{}); err != nil {
		t.Errorf("the clusters cannot be read any more: %v", err)
	}
}

// WH-12, AM-20: a rollout that could never run is refused when it is written, in every version of the kinds.
func TestRolloutStrategiesAreAdmitted(t *testing.T) {
	t.Parallel()
	admin := framework.Hub.Client(t)
	manifests := []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "a", "namespace": "default"}}}
	set := func(name string, manifests []any, strategy map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
			"metadata": map[string]any{"namespace": "default", "name": name},
			"spec": map[string]any{
				"placementRefs":        []any{map[string]any{"name": "p", "rolloutStrategy": strategy}},
				"manifestWorkTemplate": map[string]any{"workload": map[string]any{"manifests": manifests}},
			},
		}}
	}
	addOn := func(version string, strategy map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "addon.open-cluster-management.io/" + version, "kind": "ClusterManagementAddOn",
			"metadata": map[string]any{"name": "rolled-out-" + version},
			"spec": map[string]any{"installStrategy": map[string]any{"type": "Placements", "placements": []any{
				map[string]any{"namespace": "default", "name": "p", "rolloutStrategy": strategy}}}},
		}}
	}
	quarter := map[string]any{"type": "Progressive", "progressive": map[string]any{"maxConcurrency": "25%", "progressDeadline": "10m"}}
	endless := map[string]any{"type": "Progressive", "progressive": map[string]any{"minSuccessTime": "soon", "maxFailures": int64(-1)}}

	framework.Create(t, admin, set("rolled-out", manifests, quarter))
	framework.ExpectRefusal(t, admin.Create(t.Context(), set("endless", manifests, endless)), apierrors.IsBadRequest,
		`spec.placementRefs[0].rolloutStrategy.progressive.minSuccessTime: Invalid value: "soon"`,
		`spec.placementRefs[0].rolloutStrategy.progressive.maxFailures: Invalid value: "-1"`)
	framework.ExpectRefusal(t, admin.Create(t.Context(), set("empty", []any{}, quarter)), apierrors.IsBadRequest,
		"spec.manifestWorkTemplate.workload.manifests: Required value")
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		framework.Create(t, admin, addOn(version, quarter))
		framework.ExpectRefusal(t, admin.Create(t.Context(), addOn(version, endless)), apierrors.IsBadRequest,
			`spec.installStrategy.placements[0].rolloutStrategy.progressive.minSuccessTime: Invalid value: "soon"`)
	}
}

// WH-10, W4, WK-37: what the limit lets through the hub can also store, with a status of ordinary size; what is larger is refused
// with the sizes.
func TestLargeWorks(t *testing.T) {
	t.Parallel()
	admin := framework.Hub.Client(t)
	const namespace, manifests, limit = "large-works", 300, 1 << 20
	framework.Create(t, admin, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})

	const size = limit / manifests
	var padded []string
	for i := range manifests {
		empty := framework.ConfigMap("default", fmt.Sprintf("large-%03d", i), "")
		padded = append(padded, strings.Replace(empty, `"key":""`, `"key":"`+strings.Repeat("x", size-len(empty))+`"`, 1))
	}
	large := framework.Work(namespace, "large", padded...)
	framework.Create(t, admin, large)

	condition := metav1.Condition{Type: "Applied", Status: metav1.ConditionTrue, Reason: "AppliedManifestComplete",
		Message: "Apply manifest complete", LastTransitionTime: metav1.Now()}
	available, synced := condition, condition
	available.Type, synced.Type = "Available", "StatusFeedbackSynced"
	for i := range manifests {
		large.Status.ResourceStatus.Manifests = append(large.Status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap", Resource: "configmaps",
				Namespace: "default", Name: fmt.Sprintf("large-%03d", i)},
			Conditions: []metav1.Condition{condition, available, synced},
		})
	}
	if err := admin.Status().Update(t.Context(), large); err != nil {
		t.Errorf("the status does not fit: %v", err)
	}

	larger := framework.Work(namespace, "larger", append(padded, framework.ConfigMap("default", "one-more", strings.Repeat("x", size)))...)
	framework.ExpectRefusal(t, admin.Create(t.Context(), larger), apierrors.IsBadRequest, "the limit is 1048576 bytes", "manifest 300",
		"default/one-more")
}
