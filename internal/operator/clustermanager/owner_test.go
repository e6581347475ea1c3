package clustermanager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// CM-03: a hosted hub is on a cluster that is neither that of the operator nor the hub of another ClusterManager.
func TestOwnHub(t *testing.T) {
	t.Parallel()
	cluster := func(uid types.UID, objects ...client.Object) *apply.Cluster {
		system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: uid}}
		return &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(append(objects, system)...).Build()}
	}
	partOf := func(name string) client.Object {
		return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crdManagedClusters,
			Labels: map[string]string{fleet.LabelCreatedByClusterManager: name}}}
	}
	hostedCM := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted"}}
	hostedAt("hub.example.com")(hostedCM)
	other := hostedCM.DeepCopy()
	other.Name = "other"
	c := &Controller{Operator: &frame.Operator{Management: cluster("a"),
		Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(hostedCM.DeepCopy(), other).Build()}}
	for name, test := range map[string]struct {
		hub  *apply.Cluster
		want string
	}{
		"new":             {cluster("b"), ""},
		"its own":         {cluster("b", partOf("hosted")), ""},
		"of one gone":     {cluster("b", partOf("gone")), ""},
		"of another":      {cluster("b", partOf("other")), "is that of ClusterManager other"},
		"of the operator": {cluster("a"), "leads to the cluster of the operator"},
	} {
		err := c.checkOwner(t.Context(), hostedCM, test.hub)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := c.checkOwner(t.Context(), &operatorv1.ClusterManager{}, c.Management); err != nil {
		t.Errorf("in the mode Default: %v", err)
	}
}
