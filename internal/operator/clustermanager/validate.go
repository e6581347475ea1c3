package clustermanager

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/namespaceuse"
)

// maxName leaves room for the rest of the longest name of a Deployment, which is the value of a label, too.
const maxName = validation.DNS1123LabelMaxLength - len("-"+addOnManager)

// validate is an error if the hub could not work, or would not be the one that is installed. It says what would be right.
func validate(cm *operatorv1.ClusterManager) error {
	if err := errors.Join(checkMode(cm), validateAWS(cm)); err != nil || !hosted(cm) {
		return err
	}
	if cm.Name == fleet.NamespaceHub { // no version has installed one there
		return validateName(cm)
	}
	return validateAddresses(cm)
}

// checkName is an error if a hub cannot be installed under the name of its ClusterManager. One that is there already is kept up: an earlier
// version has installed it.
func checkName(cm *operatorv1.ClusterManager) error {
	if installed(cm) {
		return nil
	}
	return validateName(cm)
}

// installed reports whether the hub of a ClusterManager may be there, wholly or in part.
func installed(cm *operatorv1.ClusterManager) bool {
	return controllerutil.ContainsFinalizer(cm, fleet.FinalizerClusterManagerCleanup) || cm.Annotations[fleet.AnnotationInstalledMode] != ""
}

func validateName(cm *operatorv1.ClusterManager) error {
	var wrong string
	switch {
	case len(cm.Name) > maxName:
		wrong = fmt.Sprintf("it must have at most %d characters, because values of labels begin with it", maxName)
	case len(validation.IsDNS1123Label(cm.Name)) > 0:
		wrong = "it must have lower case letters, digits and hyphens only, because names of containers begin with it"
	case namesServices(cm) && len(validation.IsDNS1035Label(cm.Name)) > 0:
		wrong = "it must begin with a letter, because names of Services begin with it"
	case hosted(cm) && (namespaceuse.Reserved.Has(cm.Name) || cm.Name == fleet.NamespaceAgent):
		wrong = "a hosted hub runs in the namespace of its name, which has another use"
	default:
		return nil
	}
	return fmt.Errorf("%s is %q: %s; create the ClusterManager under another name", field.NewPath("metadata", "name"), cm.Name, wrong)
}

// namesServices reports whether names of Services begin with that of the ClusterManager.
func namesServices(cm *operatorv1.ClusterManager) bool {
	return servesGRPC(cm) || placement{newPlanned(cm, inputs{})}.servesExplanations()
}

// validateAddresses is an error if the API server of a hosted hub could not reach the webhooks: it would refuse what is written to it, and
// could not convert what add-ons have stored.
func validateAddresses(cm *operatorv1.ClusterManager) error {
	configuration := operatorv1.HostedClusterManagerConfiguration{}
	if option := cm.Spec.DeployOption.Hosted; option != nil {
		configuration = *option
	}
	path := field.NewPath("spec", "deployOption", "hosted")
	return errors.Join(
		validateAddress(path.Child("registrationWebhookConfiguration", "address"), configuration.RegistrationWebhookConfiguration.Address),
		validateAddress(path.Child("workWebhookConfiguration", "address"), configuration.WorkWebhookConfiguration.Address))
}

func validateAddress(path *field.Path, address string) error {
	switch {
	case address == "":
		return fmt.Errorf("%s is empty: it must be the host name or IP address at which the API server of the hub reaches the webhook; make the "+
			"webhook reachable there", path)
	case net.ParseIP(address) == nil && !isHostName(address):
		return fmt.Errorf("%s is %q: it must be an IP address, such as 192.0.2.1, or a host name in lower case, such as webhook.example.com",
			path, address)
	}
	return nil
}

// isHostName reports whether a Service can lead to a text as to a host name. One that ends with a number is a mistaken IP address.
func isHostName(text string) bool {
	last := text[strings.LastIndex(text, ".")+1:]
	return len(validation.IsDNS1123Subdomain(text)) == 0 && strings.Trim(last, "0123456789") != ""
}
