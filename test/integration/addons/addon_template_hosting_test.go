package addons

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// AM-03, AM-09, AM-11, RG-60: the annotation of a hosting cluster on a ManagedCluster, which all its add-ons get, changes nothing for one
// of a template: it is deployed, completed and given its access on the managed cluster.
func TestAddOnTemplateIsNotHosted(t *testing.T) {
	t.Parallel()
	const name = "template-hosting"
	c := framework.Hub.Client(t)
	template := templateOf(name, "here", addonv1beta1.RegistrationSpec{Type: addonv1beta1.RegistrationTypeKubeClient})
	framework.Create(t, c, template, entryOf(name))
	env.Join(t, framework.Hub, framework.Managed, name, "--kubeconfig", framework.Hub.Kubeconfig)
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	framework.MergePatch(t, c, cluster, `{"metadata":{"annotations":{"addon.open-cluster-management.io/hosting-cluster-name":"local"}}}`)
	addOn := &addonv1beta1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	framework.Create(t, c, addOn)

	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(addOn), addOn); err != nil {
			return err
		}
		progressing := meta.FindStatusCondition(addOn.Status.Conditions, fleet.ConditionProgressing)
		if addOn.Annotations[fleet.AnnotationHostingClusterName] != "local" || progressing == nil || progressing.Reason != fleet.ReasonCompleted {
			return fmt.Errorf("not completed: %v, %+v", addOn.Annotations, addOn.Status)
		}
		if references := addOn.Status.ConfigReferences; len(references) != 1 || references[0].LastAppliedConfig == nil {
			return fmt.Errorf("not applied: %+v", references)
		}
		return nil
	})
	secret := framework.AwaitSecret(t, framework.Managed.Client(t), fleet.NamespaceAgentAddOn, name+"-hub-kubeconfig", framework.KubeKeys,
		framework.AnySecret)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the hosting cluster has it, too: %v", err)
	}
}
