package framework

import (
	"encoding/json"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/capstan-io/capstan/api/apps/v1beta1"
)

// AwaitGitOps waits for the phase of a GitOpsCluster, and the reason why clusters are registered or not.
func AwaitGitOps(t *testing.T, c client.Client, g *appsv1beta1.GitOpsCluster, phase, reason string) {
	t.Helper()
	AwaitObject(t, c, g, func(now *appsv1beta1.GitOpsCluster) error {
		for _, condition := range now.Status.Conditions {
			if condition.Type == "ClustersRegistered" && condition.Reason == reason && now.Status.Phase == phase {
				return nil
			}
		}
		return fmt.Errorf("the status is %+v", now.Status)
	})
}

// ExpectArgoAccount connects as an Argo CD does that has the Secret of a cluster.
func ExpectArgoAccount(t *testing.T, secret *corev1.Secret, want string) {
	t.Helper()
	config := struct {
		BearerToken     string
		TLSClientConfig struct{ CAData []byte }
	}{}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(&rest.Config{Host: string(secret.Data["server"]), BearerToken: config.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: config.TLSClientConfig.CAData}})
	if err != nil {
		t.Fatal(err)
	}
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != want {
		t.Errorf("on the cluster, Argo CD is %q, want %q: %v", review.Status.UserInfo.Username, want, err)
	}
}
