package klusterlet

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/namespaceuse"
)

// Bounds of the API that its CRD does not have.
const (
	minStatusSync = 5 * time.Second
	maxStatusSync = time.Hour
)

// validate says what of a Klusterlet cannot be installed, beyond what the CRD refuses: naming the field, its value and what would be right.
func validate(k *operatorv1.Klusterlet) error {
	spec := field.NewPath("spec")
	problems := []error{validateName(k), validateMode(spec.Child("deployOption", "mode"), k.Spec.DeployOption.Mode)}
	for i, server := range k.Spec.ExternalServerURLs {
		problems = append(problems, validateServer(spec.Child("externalServerURLs").Index(i), server))
	}
	problems = append(problems, validateRegistration(spec.Child("registrationConfiguration"), registrationOf(k)),
		validateBootstrapDirs(spec.Child("registrationConfiguration", "bootstrapKubeConfigs"), layoutOf(k)),
		validateWork(spec.Child("workConfiguration"), workOf(k)))
	if configs := registrationOf(k).BootstrapKubeConfigs; configs.Type == operatorv1.BootstrapKubeConfigsLocalSecrets &&
		!layoutOf(k).registrationGates.Enabled(featuregates.MultipleHubs) {
		problems = append(problems, invalid(spec.Child("registrationConfiguration", "bootstrapKubeConfigs", "type"), string(configs.Type),
			"it needs the feature gate %s, which is disabled; leave the gate out", featuregates.MultipleHubs))
	}
	return errors.Join(problems...)
}

func invalid(path *field.Path, value any, format string, args ...any) error {
	if text, ok := value.(string); ok {
		value = fmt.Sprintf("%q", text)
	}
	return fmt.Errorf("%s is %v: %s", path, value, fmt.Sprintf(format, args...))
}

func validateName(k *operatorv1.Klusterlet) error {
	path, l := field.NewPath("metadata", "name"), layoutOf(k)
	switch {
	case len(k.Name) > validation.DNS1123LabelMaxLength:
		return invalid(path, k.Name, "it must have at most %d characters, because it is the value of a label", validation.DNS1123LabelMaxLength)
	case l.hosted && len(validation.IsDNS1123Label(k.Name)) > 0:
		return invalid(path, k.Name, "agents of a hosted Klusterlet run in the namespace of its name, so it must have lower case letters, digits "+
			"and hyphens only")
	case l.hosted && (namespaceuse.Reserved.Has(k.Name) || k.Name == l.accounts):
		return invalid(path, k.Name, "agents of a hosted Klusterlet run in the namespace of its name, which has another use; choose another name")
	case namespaceuse.Reserved.Has(l.accounts):
		return invalid(field.NewPath("spec", "namespace"), l.accounts,
			"the namespace has another use, and would be deleted with the Klusterlet; choose another one")
	}
	return nil
}

func validateMode(path *field.Path, mode operatorv1.InstallMode) error {
	switch mode {
	case "", operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton, operatorv1.InstallModeHosted,
		operatorv1.InstallModeSingletonHosted:
		return nil
	}
	return invalid(path, string(mode), "it must be %s, %s, %s or %s", operatorv1.InstallModeDefault, operatorv1.InstallModeSingleton,
		operatorv1.InstallModeHosted, operatorv1.InstallModeSingletonHosted)
}

// validateServer accepts an entry without a URL, which names no server.
func validateServer(path *field.Path, server operatorv1.ServerURL) error {
	if server.URL == "" {
		return nil
	}
	parsed, err := url.Parse(server.URL)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" || strings.ContainsAny(server.URL, ",=") {
		return invalid(path.Child("url"), server.URL, "it must be an https URL, such as https://cluster1.example.com:6443")
	}
	if len(server.CABundle) > 0 && !isCABundle(server.CABundle) {
		return fmt.Errorf("%s has no certificates: it must be PEM-encoded certificates", path.Child("caBundle"))
	}
	return nil
}

// isCABundle reports whether the text is certificates in PEM, one at least.
func isCABundle(bundle []byte) bool {
	found := false
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return found
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			return false
		}
		found = true
	}
}

func validateRegistration(path *field.Path, registration operatorv1.RegistrationConfiguration) error {
	problems := []error{validateDriver(path.Child("registrationDriver", "authType"), registration.RegistrationDriver.AuthType)}
	if registration.RegistrationDriver.AuthType == operatorv1.RegistrationAuthTypeAWSIRSA {
		problems = append(problems, validateAWS(path, registration))
	}
	if seconds := registration.ClientCertExpirationSeconds; seconds != 0 && seconds < fleet.MinCredentialSeconds {
		problems = append(problems, invalid(path.Child("clientCertExpirationSeconds"), seconds,
			"it must be 0, which leaves it to the hub, or at least %d", fleet.MinCredentialSeconds))
	}
	if driver := registration.AddOnKubeClientRegistrationDriver; driver != nil && driver.Token != nil {
		if seconds := driver.Token.ExpirationSeconds; seconds != 0 && seconds < fleet.MinCredentialSeconds {
			problems = append(problems, invalid(path.Child("addOnKubeClientRegistrationDriver", "token", "expirationSeconds"), seconds,
				"it must be 0 or at least %d", fleet.MinCredentialSeconds))
		}
	}
	if claims := registration.ClusterClaimConfiguration; claims != nil && claims.MaxCustomClusterClaims < 0 {
		problems = append(problems, invalid(path.Child("clusterClaimConfiguration", "maxCustomClusterClaims"), claims.MaxCustomClusterClaims,
			"it must not be negative"))
	}
	for key, value := range registration.ClusterAnnotations {
		if strings.HasPrefix(key, fleet.AnnotationAgentPrefix) && strings.ContainsAny(value, ",\"") {
			problems = append(problems, invalid(path.Child("clusterAnnotations").Key(key), value, "it must have no commas and quotation marks"))
		}
	}
	if errs := metav1validation.ValidateLabels(registration.ClusterLabels, path.Child("clusterLabels")); len(errs) > 0 {
		problems = append(problems, errs.ToAggregate())
	}
	return errors.Join(append(problems, validateBootstrap(path.Child("bootstrapKubeConfigs"), registration.BootstrapKubeConfigs))...)
}

func validateDriver(path *field.Path, driver operatorv1.RegistrationAuthType) error {
	switch driver {
	case "", operatorv1.RegistrationAuthTypeCSR, operatorv1.RegistrationAuthTypeGRPC, operatorv1.RegistrationAuthTypeAWSIRSA:
		return nil
	}
	return invalid(path, string(driver), "this version does not have it; set it to %s, %s or %s, or leave it out", operatorv1.RegistrationAuthTypeCSR,
		operatorv1.RegistrationAuthTypeGRPC, operatorv1.RegistrationAuthTypeAWSIRSA)
}

func validateBootstrap(path *field.Path, configs operatorv1.BootstrapKubeConfigs) error {
	if configs.Type != operatorv1.BootstrapKubeConfigsLocalSecrets {
		return nil
	}
	path = path.Child("localSecretsConfig", "kubeConfigSecrets")
	if configs.LocalSecrets == nil || len(configs.LocalSecrets.KubeConfigSecrets) < 2 {
		return fmt.Errorf("%s must name at least two Secrets when the type is %s", path, configs.Type)
	}
	seen := sets.New[string]()
	for i, secret := range configs.LocalSecrets.KubeConfigSecrets {
		switch {
		case len(validation.IsDNS1123Subdomain(secret.Name)) > 0:
			return invalid(path.Index(i).Child("name"), secret.Name, "it must be the name of a Secret")
		case seen.Has(secret.Name):
			return invalid(path.Index(i).Child("name"), secret.Name, "another entry has the same name; name each Secret once")
		}
		seen.Insert(secret.Name)
	}
	return nil
}

// validateBootstrapDirs is an error if the Secret of one of several hubs would be mounted where the agent has other files.
func validateBootstrapDirs(path *field.Path, l layout) error {
	if !l.multipleHubs() {
		return nil
	}
	for i, name := range l.bootstrapSecrets() {
		if dir := bootstrapDirOf(name); l.otherDirs().Has(dir) {
			return invalid(path.Child("localSecretsConfig", "kubeConfigSecrets").Index(i).Child("name"), name,
				"the Secret would be mounted in %s, where the agent has other files; choose another name, such as hub1", dir)
		}
	}
	return nil
}

func validateWork(path *field.Path, work operatorv1.WorkAgentConfiguration) error {
	var problems []error
	if period := work.AppliedManifestWorkEvictionGracePeriod; period != "" {
		if _, err := time.ParseDuration(period); err != nil {
			problems = append(problems, invalid(path.Child("appliedManifestWorkEvictionGracePeriod"), period, "it must be a duration, such as 60m"))
		}
	}
	if interval := work.StatusSyncInterval; interval != "" {
		if parsed, err := time.ParseDuration(interval); err != nil || parsed < minStatusSync || parsed > maxStatusSync {
			problems = append(problems,
				invalid(path.Child("statusSyncInterval"), interval, "it must be a duration from %s to %s", minStatusSync, "1h"))
		}
	}
	return errors.Join(problems...)
}
