package clustermanager

import (
	"errors"
	"fmt"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// validate is an error if the hub could not work, or would not be the one that is installed. A hosted hub refuses what is written to it
// while its API server cannot reach the webhooks, and it cannot convert what add-ons have stored.
func validate(cm *operatorv1.ClusterManager) error {
	if err := errors.Join(checkMode(cm), validateAWS(cm)); err != nil || !hosted(cm) {
		return err
	}
	if cm.Name == fleet.NamespaceHub {
		return fmt.Errorf("metadata.name is %q: a hosted hub runs in the namespace of its name, and this one is that of a hub in the operator's cluster; "+
			"choose another name", cm.Name)
	}
	configuration := operatorv1.HostedClusterManagerConfiguration{}
	if option := cm.Spec.DeployOption.Hosted; option != nil {
		configuration = *option
	}
	var failures []error
	for _, webhook := range []struct{ field, address string }{
		{"registrationWebhookConfiguration", configuration.RegistrationWebhookConfiguration.Address},
		{"workWebhookConfiguration", configuration.WorkWebhookConfiguration.Address},
	} {
		if webhook.address == "" {
			failures = append(failures, fmt.Errorf("spec.deployOption.hosted.%s.address is empty: it must be the host name or IP address at which "+
				"the API server of the hub reaches the webhook; make the webhook reachable there", webhook.field))
		}
	}
	return errors.Join(failures...)
}
