package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// CA-43, CP-09: a hub, the owner of a cluster and the cluster say what a user may do, each in its turn; and where the owner has rules for a
// namespace, clients still find out which APIs there are.
func TestAccess(t *testing.T) {
	t.Parallel()
	p := framework.NewProxied(t, framework.Hub, "access")
	p.Bind(t, p.Alice)
	ask := func(args ...string) env.Result {
		t.Helper()
		return framework.Hub.Capstan(t, "", append([]string{"access", "--cluster", p.Name, "-n", p.Name}, args...)...)
	}
	refused := func(text, next string, args ...string) {
		t.Helper()
		no := ask(args...)
		if no.Ends(t, 1, next); !strings.Contains(no.Out, text) {
			t.Errorf("%q is missing in:\n%s", text, no.Out)
		}
	}
	ask("list", "configmaps", "--as", p.Alice).Succeeds(t, "yes")
	refused(`no role on the cluster lets user "cluster:hub:`+p.Alice+`" list secrets in namespace access`,
		"A ClusterPermission in namespace access", "list", "secrets", "--as", p.Alice)
	refused(`the hub does not let user "stranger" get managedclusters/proxy`, "kubectl create clusterrole enter-access-stranger --verb=get",
		"list", "configmaps", "--as", "stranger")
	stranger := ask("list", "configmaps", "--as", "stranger")
	for _, command := range []string{"create clusterrole enter-access-stranger", "create clusterrolebinding enter-access-stranger"} {
		framework.FollowAdvice(t, framework.Hub.Client(t), stranger.ErrOut, command)
	}
	env.Eventually(t, func(context.Context) error {
		after := ask("list", "configmaps", "--as", "stranger")
		if !strings.Contains(after.Out, `no role on the cluster lets user "cluster:hub:stranger"`) {
			return fmt.Errorf("the hub does not let in who has the rights that it names: %s%s", after.Out, after.ErrOut)
		}
		return nil
	})
	ask("--as", p.Alice).Succeeds(t, "get,create,update,patch,delete   True", "* configmaps")

	rules := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Name, Name: fleet.ConfigMapHubAccess},
		Data: map[string]string{"rules.yaml": "- {users: [" + p.Alice + "], verbs: [list], namespaces: [" + p.Name + "]}"}}
	framework.Create(t, framework.Managed.Client(t), rules)
	env.Eventually(t, func(ctx context.Context) error {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "configmaps", Namespace: p.Name}}}
		review, err := p.As(t, p.Alice).AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed {
			return errors.New("the rules do not count yet")
		}
		return err
	})
	refused("its ConfigMap hub-access says what it lets whom do", "The owner of the cluster decides", "delete", "configmaps", "--as", p.Alice)
	ask("list", "configmaps", "--as", p.Alice).Succeeds(t, "yes")
	ask("--as", p.Alice).Ends(t, 0, "lets you do no more than: list in access")
}
