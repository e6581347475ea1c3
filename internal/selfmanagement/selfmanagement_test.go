package selfmanagement

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/signingrequest"
)

const local = "local"

// newSelf is of a hub with these objects.
func newSelf(objects ...client.Object) *self {
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).
		WithStatusSubresource(&certificatesv1.CertificateSigningRequest{}).Build()
	managed := &rest.Config{Host: "https://cluster.test", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("its CA")}}
	return &self{
		Options: Options{Managed: managed}, name: local, agent: agentName, client: c, direct: c,
		clock: testclock.NewFakePassiveClock(time.Now()), ready: make(chan struct{}), logged: map[string]bool{},
	}
}

func (s *self) isReady() bool {
	select {
	case <-s.ready:
		return true
	default:
		return false
	}
}

func reconciled(t *testing.T, s *self, name string) (*clusterv1.ManagedCluster, reconcile.Result) {
	t.Helper()
	key := client.ObjectKey{Name: name}
	result, err := s.reconcileCluster(t.Context(), reconcile.Request{NamespacedName: key})
	if err != nil {
		t.Fatal(err)
	}
	cluster := &clusterv1.ManagedCluster{}
	err = s.client.Get(t.Context(), key, cluster)
	if apierrors.IsNotFound(err) {
		return nil, result
	}
	if err != nil {
		t.Fatal(err)
	}
	return cluster, result
}

func cluster(name string, change func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelSelfManagement: ""}}}
	if change != nil {
		change(c)
	}
	return c
}

// SC-21: the ManagedCluster is accepted and says how the cluster is reached. One that the agent has made is accepted; one that an
// administrator has denied is not.
func TestManagedCluster(t *testing.T) {
	t.Parallel()
	s := newSelf()
	made, _ := reconciled(t, s, local)
	if made == nil || !made.Spec.HubAcceptsClient {
		t.Fatalf("made is %+v", made)
	}
	if _, ok := made.Labels[fleet.LabelSelfManagement]; !ok || len(made.Spec.ManagedClusterClientConfigs) != 1 ||
		made.Spec.ManagedClusterClientConfigs[0].URL != "https://cluster.test" ||
		string(made.Spec.ManagedClusterClientConfigs[0].CABundle) != "its CA" {
		t.Errorf("made is %+v", made)
	}
	reconciled(t, s, local)
	if !s.isReady() {
		t.Error("the agent does not begin")
	}

	if c, _ := reconciled(t, newSelf(cluster(local, nil)), local); !c.Spec.HubAcceptsClient {
		t.Error("a cluster that the agent has made is not accepted")
	}
	denied := cluster(local, func(c *clusterv1.ManagedCluster) {
		c.Status.Conditions = []metav1.Condition{{Type: fleet.ConditionHubAccepted, Status: metav1.ConditionFalse}}
	})
	if c, _ := reconciled(t, newSelf(denied), local); c.Spec.HubAcceptsClient {
		t.Error("a cluster that is denied is accepted")
	}
}

// SC-21: when self-management ends, or has another name, the ManagedCluster stays as long as there is something to be removed from the
// cluster.
func TestClustersThatStay(t *testing.T) {
	t.Parallel()
	other := cluster("other", nil)
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "w"}}
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "a"}}
	for name, left := range map[string]client.Object{"a work": work, "an add-on": addOn} {
		s := newSelf(other.DeepCopy(), left)
		if c, result := reconciled(t, s, "other"); c == nil || result.RequeueAfter == 0 {
			t.Errorf("with %s, the cluster goes", name)
		}
		if err := s.client.Delete(t.Context(), left); err != nil {
			t.Fatal(err)
		}
		if c, _ := reconciled(t, s, "other"); c != nil {
			t.Errorf("the cluster stays without %s", name)
		}
	}
}

// SC-21: the ID of the cluster is that of OpenShift, or else the UID of the system's namespace.
func TestClusterID(t *testing.T) {
	t.Parallel()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": "kube-system", "uid": "of-the-namespace"}}}
	version := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
		"metadata": map[string]any{"name": "version"}, "spec": map[string]any{"clusterID": "of-openshift"}}}
	kinds := map[schema.GroupVersionResource]string{clusterVersions: "ClusterVersionList", namespaces: "NamespaceList"}
	for want, objects := range map[string][]runtime.Object{
		"of-the-namespace": {namespace}, "of-openshift": {namespace.DeepCopy(), version},
	} {
		c := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
		if got, err := clusterID(t.Context(), c); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	version = version.DeepCopy()
	version.Object["spec"] = map[string]any{}
	c := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, version)
	if got, err := clusterID(t.Context(), c); err == nil {
		t.Errorf("an OpenShift without an ID has %q", got)
	}
}

// SC-21 KL-36: an agent knows what it has applied by its ID, which is the same in all replicas of a hub, and another one on each of several
// hubs that manage the same cluster.
func TestAgentsOfSeveralHubs(t *testing.T) {
	t.Parallel()
	idOn := func(hub types.UID) string {
		t.Helper()
		system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: hub}}
		id, err := agentID(t.Context(), newSelf(system).direct)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if one := idOn("one"); one != idOn("one") || one == idOn("other") {
		t.Errorf("the agents are %q, %q in a replica, and %q on another hub", one, idOn("one"), idOn("other"))
	}
}

// SC-21: a hub, or its cluster, that does not answer at once is asked again; the hub goes on meanwhile, and until it ends.
func TestIdentityIsAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "one"}}
		s, tries := newSelf(system), 0
		s.ClusterName = local
		s.direct = interceptor.NewClient(s.client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if tries++; tries < 3 {
					return apierrors.NewServiceUnavailable("starting")
				}
				return c.Get(ctx, key, o, opts...)
			}})
		persist(t.Context(), func(ctx context.Context) error { return s.identify(ctx, nil) })
		if s.name != local || s.agent != agentName+"-one" || tries != 3 {
			t.Errorf("cluster %q, agent %q after %d attempts", s.name, s.agent, tries)
		}
		ended, end := context.WithTimeout(t.Context(), time.Hour)
		defer end()
		persist(ended, func(context.Context) error { return errors.New("never") })
		if ended.Err() == nil {
			t.Error("it gives up before the hub ends")
		}
	})
}

// SC-21: what is approved is the request of the agent, which asks as an administrator, and not what others ask for.
func TestRequests(t *testing.T) {
	t.Parallel()
	const masters = "system:masters"
	for name, test := range map[string]struct {
		cluster, agent string
		groups         []string
		want           bool
	}{
		"the agent":                      {local, agentName, []string{masters, "system:authenticated"}, true},
		"who has a credential to join":   {local, agentName, []string{fleet.GroupBootstrap, "system:authenticated"}, false},
		"an administrator, of another":   {"other", agentName, []string{masters}, false},
		"an administrator, for an agent": {local, "another-agent", []string{masters}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			request, err := certutil.MakeCSR(key,
				&pkix.Name{CommonName: fleet.ClusterUser(test.cluster, test.agent), Organization: fleet.ClusterGroups(test.cluster)}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			csr := &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{Name: "csr", Labels: map[string]string{fleet.LabelClusterName: test.cluster}},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					Request:    request,
					SignerName: certificatesv1.KubeAPIServerClientSignerName, Groups: test.groups,
					Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
				},
			}
			s := newSelf(csr)
			if _, err := s.reconcileRequest(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(csr)}); err != nil {
				t.Fatal(err)
			}
			if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(csr), csr); err != nil {
				t.Fatal(err)
			}
			if got := signingrequest.Decided(csr); got != test.want {
				t.Errorf("approved: %t, want %t", got, test.want)
			}
		})
	}
}
