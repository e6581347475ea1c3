package install

import (
	"context"
	"fmt"

	"github.com/capstan-io/capstan/internal/installation"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// sayNoHub says that there was nothing to remove. A standalone hub, which this command does not remove, is named with what does; who
// cannot list Deployments in all namespaces learns of none.
func (c *cleaning) sayNoHub(ctx context.Context) {
	c.Say("There is no hub in %s that an operator has installed, and nothing is left of one.", c.in.Server())
	deployments, err := c.in.List(ctx, installation.KindDeployment, "", "app="+installer.StandaloneHubName)
	if err != nil {
		return
	}
	for i := range deployments {
		if deployments[i].GetName() == installer.StandaloneHubName {
			c.noteStandalone(deployments[i].GetNamespace(), installation.InstallerOf(deployments[i].GetLabels(), deployments[i].GetAnnotations()))
		}
	}
}

// noteStandalone says how a standalone hub is removed, which a tool may keep.
func (c *cleaning) noteStandalone(namespace string, by installation.Installer) {
	if by.Name != "" {
		c.Note("Namespace %s has a standalone hub, which is kept by %s. To remove it, %s; then delete its volume, which has all that is stored "+
			"in it.", namespace, by.Name, by.Uninstall)
		return
	}
	c.Note("Namespace %[1]s has a standalone hub. These commands remove it, with all that is stored in it:\n\n"+
		"    kubectl delete namespace %[1]s\n    kubectl delete clusterrolebinding %[2]s\n    kubectl delete clusterrole %[2]s\n",
		namespace, rightsOfStandalone(namespace))
}

// rightsOfStandalone is the name of the ClusterRole of a standalone hub, and of its binding.
func rightsOfStandalone(namespace string) string {
	return "open-cluster-management:" + installer.StandaloneHubName + ":" + namespace
}

// ensureRunsPods refuses a cluster in which no operator can run. It is a standalone hub, which would go on without what clusters join with,
// or has the API of a hub that runs elsewhere.
func (c *cleaning) ensureRunsPods(ctx context.Context) error {
	served, err := c.in.Serves(ctx, installation.KindDeployment.GroupVersion())
	if err != nil || served {
		return err
	}
	return fmt.Errorf("the cluster at %s, where %s leads, runs no pods, so no operator has installed a hub in it: it is a standalone hub, or "+
		"has the API of a hub that runs elsewhere.\nA standalone hub is removed where it runs. In a cluster, delete its namespace there, and the "+
		"ClusterRole and the ClusterRoleBinding %s; if Helm has installed it, run \"helm uninstall\" instead. On a machine, end its process, and "+
		"delete its data directory.\nFor a hub of an operator, choose the cluster that the operator runs in with --kubeconfig or --context",
		c.in.Server(), c.in.Source(), rightsOfStandalone("NAMESPACE"))
}
