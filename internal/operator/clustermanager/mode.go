package clustermanager

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// modeOf is the mode in which the hub is installed; until it is, the one of the spec. It says on which cluster the API of the hub is, with
// all that users have stored, so that it does not change while the hub exists.
func modeOf(cm *operatorv1.ClusterManager) operatorv1.InstallMode {
	switch mode := operatorv1.InstallMode(cm.Annotations[fleet.AnnotationInstalledMode]); mode {
	case operatorv1.InstallModeDefault, operatorv1.InstallModeHosted:
		return mode
	default:
		return specifiedMode(cm)
	}
}

func specifiedMode(cm *operatorv1.ClusterManager) operatorv1.InstallMode {
	if cm.Spec.DeployOption.Mode == operatorv1.InstallModeHosted {
		return operatorv1.InstallModeHosted
	}
	return operatorv1.InstallModeDefault
}

func hosted(cm *operatorv1.ClusterManager) bool { return modeOf(cm) == operatorv1.InstallModeHosted }

// checkMode is an error if the spec has another mode than that in which the hub is installed.
func checkMode(cm *operatorv1.ClusterManager) error {
	installed, specified := modeOf(cm), specifiedMode(cm)
	if installed == specified {
		return nil
	}
	return fmt.Errorf("spec.deployOption.mode is %s, but the hub is installed in the mode %s, which cannot change: set it to %s again, or delete the "+
		"ClusterManager, with all that is stored in the hub, and create it in the mode %s", specified, installed, installed, specified)
}

// recordRunningMode records the mode of a hub that is installed and whose ClusterManager does not say it: another operator has installed
// it, or the annotation was lost when a user replaced the ClusterManager.
func (c *Controller) recordRunningMode(ctx context.Context, cm *operatorv1.ClusterManager) error {
	if cm.Annotations[fleet.AnnotationInstalledMode] != "" {
		return nil
	}
	deployments, err := c.Management.List(ctx, cm.Name, apply.Deployments)
	if err != nil {
		return err
	}
	mode := runningMode(cm, deployments)
	if mode == "" {
		return nil
	}
	return c.recordMode(ctx, cm, mode)
}

// runningMode is the mode in which the components of a hub run, which their namespace shows; empty if there are none.
func runningMode(cm *operatorv1.ClusterManager, deployments []client.Object) operatorv1.InstallMode {
	for _, deployment := range deployments {
		switch deployment.GetNamespace() {
		case fleet.NamespaceHub:
			return operatorv1.InstallModeDefault
		case cm.Name:
			return operatorv1.InstallModeHosted
		}
	}
	return ""
}

// recordMode records in which mode the hub is installed. In memory it changes the metadata alone.
func (c *Controller) recordMode(ctx context.Context, cm *operatorv1.ClusterManager, mode operatorv1.InstallMode) error {
	if err := frame.Annotate(ctx, c.Client, cm, fleet.AnnotationInstalledMode, string(mode)); err != nil {
		return fmt.Errorf("write down the mode: %w", err)
	}
	return nil
}
