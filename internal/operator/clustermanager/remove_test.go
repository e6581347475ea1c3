package clustermanager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/remote"
	"github.com/capstan-io/capstan/internal/rights/rightstest"
)

// CM-20: the removal of a hub that cannot be reached any more says how to end it.
func TestRemovalNamesTheWayOut(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted"}}
	hostedAt("hub.example.com")(cm)
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: fleet.SecretExternalHubKubeconfig}}
	c := &Controller{Operator: &frame.Operator{
		Secrets:   frame.NewSecrets(t.Context(), clientset.NewClientset(stored).CoreV1(), rightstest.Reviewer{Rules: []rbacv1.PolicyRule{}}, nil),
		Elsewhere: remote.New(t.Context(), apply.Options{}),
	}}
	_, err := c.removeAll(t.Context(), cm)
	const want = "correct Secret hosted/external-hub-kubeconfig, or delete it to give up what is on the hub"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}

// CM-20: the end of a hub is that of all of its objects, also those that were applied a moment before, which no cache has seen: the
// clusters of this test have none. What others have made stays.
func TestRemovalOfWhatWasJustApplied(t *testing.T) {
	t.Parallel()
	labelled := func(object client.Object, by string) client.Object {
		object.SetLabels(map[string]string{fleet.LabelCreatedByClusterManager: by})
		return object
	}
	in := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: fleet.NamespaceHub, Name: name}
	}
	crd := func(name string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	for name, test := range map[string]struct {
		object client.Object
		skip   bool
		gone   bool
	}{
		"a Deployment":           {object: labelled(&appsv1.Deployment{ObjectMeta: in("a")}, "indigo"), gone: true},
		"a service account":      {object: labelled(&corev1.ServiceAccount{ObjectMeta: in("a")}, "indigo"), gone: true},
		"a ClusterRole":          {object: labelled(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, "indigo"), gone: true},
		"a Secret":               {object: labelled(&corev1.Secret{ObjectMeta: in("a")}, "indigo"), gone: true},
		"a Secret of a user":     {object: &corev1.Secret{ObjectMeta: in("a")}},
		"a Secret of another":    {object: labelled(&corev1.Secret{ObjectMeta: in("a")}, "other")},
		"a CRD":                  {object: labelled(crd("placements.cluster.open-cluster-management.io"), "indigo"), gone: true},
		"the first of the CRDs":  {object: labelled(crd("managedclusteraddons.addon.open-cluster-management.io"), "indigo"), gone: true},
		"a CRD that is to stay":  {object: labelled(crd("placements.cluster.open-cluster-management.io"), "indigo"), skip: true},
		"a CRD of the SIG":       {object: labelled(crd(crdClusterProfiles), "indigo")},
		"another of the SIG":     {object: labelled(crd("placementdecisions.multicluster.x-k8s.io"), "indigo")},
		"one of the same kind":   {object: labelled(crd("placementdecisions.cluster.open-cluster-management.io"), "indigo"), gone: true},
		"a CRD of another":       {object: labelled(crd("placements.cluster.open-cluster-management.io"), "other")},
		"a Secret, without CRDs": {object: labelled(&corev1.Secret{ObjectMeta: in("a")}, "indigo"), skip: true, gone: true},
	} {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo"}}
		cluster := &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.object).Build(),
			Options: apply.Options{Label: fleet.LabelCreatedByClusterManager, Kinds: frame.ManagementKinds(hubKinds()), Scheme: Scheme()}}
		c := &Controller{Operator: &frame.Operator{Management: cluster}, skipRemoveCRDs: test.skip}
		waitsFor := "the start"
		for range 3 {
			var err error
			if waitsFor, err = c.removeCRDs(t.Context(), cm, cluster); err == nil && waitsFor == "" {
				var left []string
				left, err = cluster.PruneLive(t.Context(), cm.Name)
				waitsFor = frame.Summary(left)
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if waitsFor != "" {
			t.Errorf("%s: waits for %s", name, waitsFor)
		}
		err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(test.object), test.object)
		if client.IgnoreNotFound(err) != nil || apierrors.IsNotFound(err) != test.gone {
			t.Errorf("%s: gone: %v", name, err)
		}
		if owned := test.object.GetLabels()[fleet.LabelCreatedByClusterManager] == "indigo"; err == nil && owned {
			t.Errorf("%s is still labelled", name)
		}
	}
}

// CM-20: no CRD of a hub that is removed keeps a webhook that has not answered for long, or that goes: what is stored could not be read. A
// webhook that answers, or does so again soon, stays, since fields are lost without it. A CRD that stays serves the version alone in which
// its objects are stored. Those of another hub stay as they are.
func TestConversionGoesWithTheHub(t *testing.T) {
	t.Parallel()
	const none, converted, unseen = "None v1alpha1 v1beta1", "Webhook v1alpha1 v1beta1", -2
	for name, test := range map[string]struct {
		owner string
		// available are the pods of the webhook that are available, every 90 seconds; -1 for no Deployment, and unseen if nobody looks.
		available    []int32
		hosted, stay bool
		want         string
	}{
		"dead":                    {owner: "indigo", available: []int32{0, 0, 0, 0, 0}, want: none},
		"dead, hosted":            {owner: "indigo", available: []int32{0, 0, 0, 0, 0}, hosted: true, want: none},
		"gone":                    {owner: "indigo", available: []int32{-1, -1, -1, -1, 0}, want: none},
		"dead, of another":        {owner: "other", available: []int32{0, 0, 0, 0, 0}, want: converted},
		"dead, to stay":           {owner: "indigo", available: []int32{0, 0, 0, 0, 0}, stay: true, want: "None v1alpha1"},
		"not for long":            {owner: "indigo", available: []int32{1, 0, 0, 0, 0}, want: converted},
		"back for a while":        {owner: "indigo", available: []int32{0, 0, 1, 0, 0, 0}, want: converted},
		"unseen for a while":      {owner: "indigo", available: []int32{0, 0, unseen, 0, 0, 0}, want: converted},
		"dead since it was seen":  {owner: "indigo", available: []int32{0, unseen, 0, 0, 0, 0, 0}, want: none},
		"with one pod of three":   {owner: "indigo", available: []int32{1, 1, 1, 1, 1}, want: converted},
		"running, hosted":         {owner: "indigo", available: []int32{1, 1, 1, 1, 1}, hosted: true, want: converted},
		"running, to stay":        {owner: "indigo", available: []int32{1, 1, 1, 1, 1}, stay: true, want: "None v1alpha1"},
		"to stay, of another":     {owner: "other", available: []int32{0, 0, 0, 0, 0}, stay: true, want: converted},
		"seen for the first time": {owner: "indigo", available: []int32{-1}, want: converted},
	} {
		cm, webhook := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "indigo"}}, "indigo-"+addOnWebhook
		if test.hosted {
			hostedAt("hub.example.com")(cm)
			webhook = "indigo-" + registrationWebhook
		}
		var crds []client.Object
		for _, crd := range newPlanned(cm, inputs{namespace: namespaceOf(cm)}).crds() {
			if conversionConfig(crd) != nil {
				crd.Labels = map[string]string{fleet.LabelCreatedByClusterManager: test.owner}
				crds = append(crds, crd)
			}
		}
		management, clk := withoutServer(t), clocktesting.NewFakeClock(installedAt)
		management.Client = fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(crds...).Build()
		c := &Controller{Operator: &frame.Operator{Management: management, Options: frame.Options{Clock: clk}}, skipRemoveCRDs: test.stay}
		for _, available := range test.available {
			get := func(_ context.Context, key types.NamespacedName) (*appsv1.Deployment, error) {
				if available < 0 || key.Namespace != namespaceOf(cm) || key.Name != webhook {
					return nil, apierrors.NewNotFound(appsv1.Resource("deployments"), key.Name)
				}
				return &appsv1.Deployment{Status: appsv1.DeploymentStatus{AvailableReplicas: available}}, nil
			}
			if available != unseen {
				if err := c.endDeadConversion(t.Context(), cm, management, get); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			clk.Step(90 * time.Second)
		}
		if test.stay {
			if _, err := c.removeCRDs(t.Context(), cm, management); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(crds) != 2 {
			t.Errorf("%s: %d CRDs have conversions", name, len(crds))
		}
		for _, crd := range crds {
			if got := conversionOf(t, management.Client, crd); got != test.want {
				t.Errorf("%s: %s has %s, want %s", name, crd.GetName(), got, test.want)
			}
		}
	}
}

// conversionOf is how the objects of a CRD are converted, and the versions that are served.
func conversionOf(t *testing.T, cluster client.Client, crd client.Object) string {
	t.Helper()
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := cluster.Get(t.Context(), client.ObjectKeyFromObject(crd), live); err != nil {
		t.Fatal(err)
	}
	got := []string{string(live.Spec.Conversion.Strategy)}
	for _, version := range live.Spec.Versions {
		if version.Served {
			got = append(got, version.Name)
		}
	}
	return strings.Join(got, " ")
}

// CM-20: a Deployment that cannot be read says nothing about its webhook.
func TestConversionOfUnknown(t *testing.T) {
	t.Parallel()
	c, failure := &Controller{Operator: &frame.Operator{}}, errors.New("no answer")
	unread := func(context.Context, types.NamespacedName) (*appsv1.Deployment, error) { return nil, failure }
	if err := c.endDeadConversion(t.Context(), &operatorv1.ClusterManager{}, nil, unread); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}

// CM-20: what delays the removal of a hub is named, with its finalizers.
func TestRemaining(t *testing.T) {
	t.Parallel()
	work := func(name string, finalizers ...string) *workv1.ManifestWork {
		return &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "c1", Name: name, Finalizers: finalizers}}
	}
	scheme := runtime.NewScheme()
	if err := workv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kind, crd := workv1.GroupVersion.WithKind("ManifestWork"), "manifestworks.work.open-cluster-management.io"
	for want, objects := range map[string][]client.Object{
		"CustomResourceDefinition " + crd: nil,
		"ManifestWorks c1/web (finalizers: cluster.open-cluster-management.io/manifest-work-cleanup, example.com/stay)": {
			work("web", fleet.FinalizerManifestWorkCleanup, "example.com/stay")},
	} {
		hub := &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
		if got := remaining(t.Context(), hub, crd, kind); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// CM-20: of many objects that delay the removal of a hub, a few are named, and it is said how many more there are.
func TestRemainingOfMany(t *testing.T) {
	t.Parallel()
	reader := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, into client.ObjectList, _ ...client.ListOption) error {
			list, isMetadata := into.(*metav1.PartialObjectMetadataList)
			if !isMetadata {
				return errors.New("more than metadata is read")
			}
			list.Items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "c1", Finalizers: []string{"a.test/stay"}}},
				{ObjectMeta: metav1.ObjectMeta{Name: "c2", Finalizers: []string{"a.test/stay", "b.test/stay"}}}}
			list.RemainingItemCount = ptr.To[int64](995)
			return nil
		}}).Build()
	got := remaining(t.Context(), &apply.Cluster{Client: reader}, "managedclusters.cluster.open-cluster-management.io",
		clusterv1.GroupVersion.WithKind("ManagedCluster"))
	want := "ManagedClusters c1 (finalizers: a.test/stay); c2 (finalizers: a.test/stay, b.test/stay) and 995 more"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// CM-02, CM-20, CM-28: where a hub runs in the namespace of the operator, the operator and what users have stored for it outlive the hub.
// What belongs to the cluster of a hub that stays is left.
func TestRemovalLeavesTheOperator(t *testing.T) {
	t.Parallel()
	labelled := func(object client.Object) client.Object {
		object.SetLabels(map[string]string{fleet.LabelCreatedByClusterManager: "indigo"})
		return object
	}
	objects := func(namespace string) []client.Object {
		made := []client.Object{labelled(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})}
		for _, name := range []string{"pull", fleet.SecretWorkDriverConfig, fleet.SecretSigner} {
			made = append(made, labelled(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
		}
		return made
	}
	const operator = "pull work-driver-config"
	for name, test := range map[string]struct {
		edit      func(*operatorv1.ClusterManager)
		namespace string
		hubStays  bool
		// left are the names of Namespaces and Secrets in the operator's cluster, and onHub those on a hosted hub.
		left, onHub string
	}{
		"in another namespace": {edit: named("indigo"), namespace: fleet.NamespaceOperators},
		"in the same namespace": {edit: named("indigo"), namespace: fleet.NamespaceHub,
			left: fleet.NamespaceHub + " " + operator},
		"hosted":                       {edit: named("indigo", hostedAt("hub.example.com")), namespace: fleet.NamespaceOperators},
		"hosted in the same namespace": {edit: named("indigo", hostedAt("hub.example.com")), namespace: "indigo", left: "indigo " + operator},
		"hosted, with a hub that stays": {edit: named("indigo", hostedAt("hub.example.com")), namespace: fleet.NamespaceOperators,
			hubStays: true, onHub: "indigo pull signer-secret work-driver-config"},
	} {
		cm := &operatorv1.ClusterManager{}
		test.edit(cm)
		cluster := func() *apply.Cluster {
			return &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects(namespaceOf(cm))...).Build(),
				Options: apply.Options{Label: fleet.LabelCreatedByClusterManager, Kinds: frame.ManagementKinds(hubKinds()), Scheme: Scheme()}}
		}
		management := cluster()
		onHub := management
		if hosted(cm) {
			onHub = cluster()
		}
		hub := onHub
		if test.hubStays {
			hub = nil
		}
		c := &Controller{Operator: &frame.Operator{Management: management,
			Options: frame.Options{Namespace: test.namespace, PullSecret: "pull"}}}
		waitsFor := "the start"
		for range 3 {
			var err error
			if waitsFor, err = c.removeRest(t.Context(), cm, hub); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if waitsFor != "" {
			t.Errorf("%s: waits for %s", name, waitsFor)
		}
		if got := namesIn(t, management.Client); got != test.left {
			t.Errorf("%s: %q is left, want %q", name, got, test.left)
		}
		if got := namesIn(t, onHub.Client); hosted(cm) && got != test.onHub {
			t.Errorf("%s: %q is left on the hub, want %q", name, got, test.onHub)
		}
	}
}

// namesIn are the names of the Namespaces and Secrets of a cluster, sorted.
func namesIn(t *testing.T, cluster client.Client) string {
	t.Helper()
	namespaces, secrets := &corev1.NamespaceList{}, &corev1.SecretList{}
	if err := errors.Join(cluster.List(t.Context(), namespaces), cluster.List(t.Context(), secrets)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range namespaces.Items {
		names = append(names, namespaces.Items[i].Name)
	}
	for i := range secrets.Items {
		names = append(names, secrets.Items[i].Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
