package clustermanager

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/apply"
	"github.com/capstan-io/capstan/internal/operator/remote"
)

// CM-20: the removal of a hub that cannot be reached any more says how to end it.
func TestRemovalNamesTheWayOut(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "hosted"}}
	hostedAt("hub.example.com")(cm)
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "hosted", Name: fleet.SecretExternalHubKubeconfig}}
	c := &Controller{
		client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(stored).Build(),
		hubs:   remote.New(t.Context(), apply.Options{}),
	}
	_, err := c.removeAll(t.Context(), cm)
	const want = "correct Secret hosted/external-hub-kubeconfig, or delete it to give up what is on the hub"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
}
