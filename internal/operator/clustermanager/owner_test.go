package clustermanager

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-03, CM-20: a hosted hub is on a cluster that is neither that of the operator nor the hub of another ClusterManager, and the removal of
// another one leaves the hub of a ClusterManager in its own cluster alone.
func TestOwnHub(t *testing.T) {
	t.Parallel()
	hostedCM := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted"}}
	hostedAt("hub.example.com")(hostedCM)
	other := hostedCM.DeepCopy()
	other.Name = "other"
	c := &Controller{Operator: &frame.Operator{Management: clusterWith("a"),
		Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(hostedCM.DeepCopy(), other).Build()}}
	inMode := func(name string, mode operatorv1.InstallMode) *operatorv1.ClusterManager {
		cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: name}}
		cm.Spec.DeployOption.Mode = mode
		return cm
	}
	installed := inMode("hosted", operatorv1.InstallModeHosted)
	installed.Annotations = map[string]string{fleet.AnnotationInstalledMode: string(operatorv1.InstallModeDefault)}
	for name, test := range map[string]struct {
		hub  *apply.Cluster
		want string
		// stays reports whether a removal leaves the hub.
		stays bool
	}{
		"new":             {hub: clusterWith("b")},
		"its own":         {hub: clusterWith("b", partOf("hosted"))},
		"of one gone":     {hub: clusterWith("b", partOf("gone"))},
		"of another":      {hub: clusterWith("b", partOf("other")), want: "is that of ClusterManager other: "},
		"of the operator": {hub: clusterWith("a"), want: "leads to the cluster of the operator"},
		"of one there": {hub: clusterWith("b", partOf("resident"), inMode("resident", operatorv1.InstallModeDefault)), stays: true,
			want: "is that of ClusterManager resident in the cluster of the hub: store a kubeconfig of another cluster, or delete"},
		"of one there with the same name": {hub: clusterWith("b", partOf("hosted"), inMode("hosted", "")), stays: true,
			want: "is that of ClusterManager hosted in the cluster of the hub"},
		"of one there that is not installed yet": {hub: clusterWith("b", inMode("new", "")), stays: true,
			want: "is that of ClusterManager new in"},
		"of one there, whatever mode it is to get": {hub: clusterWith("b", installed), stays: true, want: "ClusterManager hosted in"},
		"where a hosted one is":                    {hub: clusterWith("b", partOf("hosted"), inMode("far", operatorv1.InstallModeHosted))},
		"of the operator, where others are": {hub: clusterWith("a", inMode("resident", "")),
			want: "leads to the cluster of the operator"},
	} {
		err := c.checkOwner(t.Context(), hostedCM, test.hub)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if hub, err := c.unlessResident(t.Context(), hostedCM, test.hub); err != nil || (hub == nil) != test.stays {
			t.Errorf("%s: a removal is about %v, %v", name, hub, err)
		}
	}
	inOwn := &operatorv1.ClusterManager{}
	if err := c.checkOwner(t.Context(), inOwn, c.Management); err != nil {
		t.Errorf("in the mode Default: %v", err)
	}
	if hub, err := c.unlessResident(t.Context(), inOwn, c.Management); err != nil || hub != c.Management {
		t.Errorf("in the mode Default, a removal is about %v, %v", hub, err)
	}
}

// CM-03: of ClusterManagers that lead to the same hub and are installed at the same time, one has it.
func TestClaim(t *testing.T) {
	t.Parallel()
	hub := clusterWith("b")
	var names []string
	var managers []client.Object
	for i := range 8 {
		names = append(names, fmt.Sprintf("hub-%d", i))
		managers = append(managers, &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: names[i]}})
	}
	c := &Controller{Operator: &frame.Operator{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(managers...).Build()}}
	claims := make([]error, len(names))
	var group sync.WaitGroup
	for i, name := range names {
		group.Go(func() {
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: name}}
			claims[i] = c.claimWith(t.Context(), cm, hub, func() error {
				runtime.Gosched()
				return hub.Client.Create(t.Context(), partOf(name))
			})
		})
	}
	group.Wait()
	owner, err := ownerOf(t.Context(), hub)
	if err != nil || owner == "" {
		t.Fatalf("the hub is that of %q, %v", owner, err)
	}
	for i, name := range names {
		refused := claims[i] != nil && strings.Contains(claims[i].Error(), "is that of ClusterManager "+owner+": ")
		if refused == (name == owner) || name == owner && claims[i] != nil {
			t.Errorf("%s, where %s has the hub: %v", name, owner, claims[i])
		}
	}
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: owner}}
	if err := c.claimWith(t.Context(), cm, hub, func() error { return errors.New("it is applied again") }); err != nil {
		t.Error(err)
	}
}

// clusterWith is a cluster of that identity with objects.
func clusterWith(uid types.UID, objects ...client.Object) *apply.Cluster {
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
	return &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(append(objects, system)...).Build()}
}

// partOf is the definition of a hub of that ClusterManager.
func partOf(name string) client.Object {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crdManagedClusters,
		Labels: map[string]string{fleet.LabelCreatedByClusterManager: name}}}
}

// CM-03, CM-20: a cluster that does not serve ClusterManagers, or not to the operator, has none; any other failure to list them is one.
func TestResidentOfWithoutAnswer(t *testing.T) {
	t.Parallel()
	resource := schema.GroupResource{Group: operatorv1.GroupVersion.Group, Resource: "clustermanagers"}
	for name, test := range map[string]struct {
		answer error
		fails  bool
	}{
		"no such kind":       {answer: &meta.NoKindMatchError{GroupKind: operatorv1.GroupVersion.WithKind("ClusterManager").GroupKind()}},
		"no longer served":   {answer: apierrors.NewNotFound(resource, "")},
		"without the right":  {answer: apierrors.NewForbidden(resource, "", errors.New(`User "a" cannot list resource "clustermanagers"`))},
		"forbidden for good": {answer: apierrors.NewForbidden(resource, "", errors.New("the cluster is locked")), fails: true},
		"no answer":          {answer: errors.New("no connection"), fails: true},
	} {
		hub := &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return test.answer
			},
		}).Build()}
		if resident, err := residentOf(t.Context(), hub); resident != "" || (err != nil) != test.fails {
			t.Errorf("%s: %q, %v", name, resident, err)
		}
	}
}
