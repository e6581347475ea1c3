// Package registrations determines what the agent of an add-on may register for on a cluster. The status of the ManagedClusterAddOn
// lists it, but the agent of the cluster may write to that status, so rights and certificates are never based on the status alone.
package registrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-io/capstan/addon"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Of calls the add-on for its registrations. Missing users and groups default to those of the add-on on that cluster. It fails if the
// add-on requests an identity of another cluster, of another add-on or of Kubernetes, or for one of their signers.
func Of(ctx context.Context, registration *addon.Registration, installation addon.Installation) ([]addonv1beta1.RegistrationConfig, error) {
	if registration == nil || registration.Configs == nil {
		return nil, nil
	}
	configs, err := registration.Configs(ctx, installation)
	if err != nil {
		return nil, err
	}
	own := owner{cluster: installation.Cluster.Name, addOn: installation.AddOn.Name}
	complete := make([]addonv1beta1.RegistrationConfig, 0, len(configs))
	signers := map[string]bool{}
	for i := range configs {
		config, err := own.complete(configs[i].DeepCopy())
		if err != nil {
			return nil, fmt.Errorf("registration %d: %w", i, err)
		}
		if signer := Signer(config); signers[signer] {
			return nil, fmt.Errorf("registration %d: the signer %q has one already: an add-on registers once for each", i, signer)
		}
		signers[Signer(config)] = true
		complete = append(complete, *config)
	}
	return complete, nil
}

// Signer returns the signer of the certificate requests for a registration.
func Signer(config *addonv1beta1.RegistrationConfig) string {
	if config.Type == addonv1beta1.CustomSigner && config.CustomSigner != nil {
		return config.CustomSigner.SignerName
	}
	return fleet.SignerKubeAPIServerClient
}

// Subject returns the subject of the certificates for a registration.
func Subject(config *addonv1beta1.RegistrationConfig) addonv1beta1.Subject {
	switch {
	case config.Type == addonv1beta1.CustomSigner && config.CustomSigner != nil:
		return config.CustomSigner.Subject
	case config.KubeClient != nil:
		return addonv1beta1.Subject{User: config.KubeClient.Subject.User, Groups: config.KubeClient.Subject.Groups}
	default:
		return addonv1beta1.Subject{}
	}
}

// Drive sets the driver of a registration for the hub to the one that the agent of the cluster has declared in the status of the
// add-on. With tokens, it sets the subject to their service account.
func Drive(config *addonv1beta1.RegistrationConfig, addOn *addonv1beta1.ManagedClusterAddOn) {
	for i := range addOn.Status.Registrations {
		declared := &addOn.Status.Registrations[i]
		if declared.Type != addonv1beta1.KubeClient || declared.KubeClient == nil {
			continue
		}
		config.KubeClient.Driver = declared.KubeClient.Driver
		if declared.KubeClient.Driver == addonv1beta1.KubeClientDriverToken {
			config.KubeClient.Subject = tokenSubject(addOn.Namespace, addOn.Name, declared.KubeClient.Subject.Groups)
		}
		return
	}
}

// tokenSubject keeps only groups that a service account has anyway.
func tokenSubject(cluster, addOn string, declared []string) addonv1beta1.KubeClientSubject {
	subject := addonv1beta1.KubeClientSubject{User: fleet.AddOnTokenUser(cluster, addOn)}
	for _, group := range declared {
		if slices.Contains(fleet.ServiceAccountGroups(cluster), group) {
			subject.Groups = append(subject.Groups, group)
		}
	}
	return subject
}

// owner is the add-on on a cluster to which an identity belongs.
type owner struct{ cluster, addOn string }

func (o owner) complete(config *addonv1beta1.RegistrationConfig) (*addonv1beta1.RegistrationConfig, error) {
	switch config.Type {
	case addonv1beta1.KubeClient:
		if config.KubeClient == nil {
			config.KubeClient = &addonv1beta1.KubeClientConfig{}
		}
		subject := &config.KubeClient.Subject
		o.fill(&subject.User, &subject.Groups)
		return config, o.checkSubject(subject.User, subject.Groups)
	case addonv1beta1.CustomSigner:
		if config.CustomSigner == nil {
			return nil, fmt.Errorf("customSigner is missing: type %q needs it", config.Type)
		}
		if err := checkSigner(config.CustomSigner.SignerName); err != nil {
			return nil, err
		}
		subject := &config.CustomSigner.Subject
		if subject.User == "" {
			o.fill(&subject.User, &subject.Groups)
		}
		return config, o.checkSubject(subject.User, subject.Groups)
	default:
		return nil, fmt.Errorf("type %q does not exist: use %q or %q", config.Type, addonv1beta1.KubeClient, addonv1beta1.CustomSigner)
	}
}

// fill sets the default user and groups of the add-on where they are missing.
func (o owner) fill(user *string, groups *[]string) {
	if *user == "" {
		*user = fleet.AddOnUser(o.cluster, o.addOn, o.addOn)
	}
	if len(*groups) == 0 {
		*groups = fleet.AddOnGroups(o.cluster, o.addOn)
	}
}

// checkSigner refuses signers whose certificates Kubernetes or the hub itself trusts.
func checkSigner(signer string) error {
	if signer == "" {
		return errors.New("customSigner.signerName is empty: write the name of the signer, such as example.com/hello")
	}
	if fleet.IsReservedSigner(signer) {
		return fmt.Errorf("signerName %q is not for add-ons: use type %q for access to the hub, and for anything else a signer with a domain of your own",
			signer, addonv1beta1.KubeClient)
	}
	return nil
}

func (o owner) checkSubject(user string, groups []string) error {
	for _, name := range append([]string{user}, groups...) {
		if !o.mayHave(name) {
			return fmt.Errorf("%q is not a name for the add-on %s on the cluster %s: names that begin with \"system:\" or \"open-cluster-management:\" have to "+
				"be %s, or begin with one of these and a colon",
				name, o.addOn, o.cluster, strings.Join(fleet.AddOnGroups(o.cluster, o.addOn), " or "))
		}
	}
	return nil
}

// mayHave reports whether the name of a user or group is the add-on's own, or unknown to the hub.
func (o owner) mayHave(name string) bool {
	if name == fleet.GroupAuthenticated {
		return true
	}
	if slices.ContainsFunc(fleet.AddOnGroups(o.cluster, o.addOn), func(own string) bool {
		return name == own || strings.HasPrefix(name, own+":")
	}) {
		return true
	}
	// The second is the group of an agent that joined through AWS IAM.
	return !strings.HasPrefix(name, "system:") && !strings.HasPrefix(name, fleet.AWSClusterGroup(""))
}
