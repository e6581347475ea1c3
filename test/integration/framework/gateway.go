package framework

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	gatewayv1alpha1 "github.com/capstan-io/capstan/api/gateway/v1alpha1"
	"github.com/capstan-io/capstan/test/env"
)

// GatewayNamespace is where a ClusterGateway finds the Secrets of clusters.
const GatewayNamespace = "open-cluster-management-credentials"

// ThroughGateway reaches a cluster by a kubeconfig of the hub whose server has the path of the gateway.
func ThroughGateway(t *testing.T, config *rest.Config, cluster string) kubernetes.Interface {
	t.Helper()
	to := rest.CopyConfig(config)
	to.Host += "/apis/" + gatewayv1alpha1.GroupVersion.String() + "/clustergateways/" + cluster + "/proxy"
	c, err := kubernetes.NewForConfig(to)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// AccountOnCluster makes a service account without rights on the managed cluster, and returns its token and the CA of the cluster.
func AccountOnCluster(t *testing.T, name string) (token string, config *rest.Config) {
	t.Helper()
	config, err := Managed.Config()
	if err != nil {
		t.Fatal(err)
	}
	c := kubernetes.NewForConfigOrDie(config)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	answer, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token, config
}

// AwaitWatched waits until a watch tells of an object of that name.
func AwaitWatched(t *testing.T, events watch.Interface, kind watch.EventType, name string) {
	t.Helper()
	for event := range env.Events(t, events) {
		if o, err := meta.Accessor(event.Object); err == nil && event.Type == kind && o.GetName() == name {
			return
		}
	}
	t.Fatalf("the watch ended before %s %s", kind, name)
}
