package registration

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"slices"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/addon/install"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// desiredSecret is a Secret that one of an add-on's registrations is for.
type desiredSecret struct {
	addOn   string
	cluster string
	secret  client.ObjectKey
	// request is the certificate to request; nil if the add-on gets a token.
	request *clientcert.AddOn
	// kubeconfig is for access to the hub; nil for what is of another signer.
	kubeconfig []byte
	// refused is why the Secret cannot be made; nil if it can.
	refused error
	// hubID is of the hub that the credential has to be of.
	hubID string
	// notBefore is the earliest start of the validity of certificates that the hub accepts; the zero time accepts all.
	notBefore time.Time
}

// errNotYet says that it is not known which Secrets are desired. Existing ones stay as they are.
var errNotYet = errors.New("which Secrets the add-on is to have is not known yet")

// desiredSecrets are the Secrets of an add-on. Of several registrations for the same Secret, the last one counts. It fails with
// errNotYet while the agent has no credential of its own, and is about to get another, or it is not known where the add-on's agent runs.
func (c *Controller) desiredSecrets(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, cluster string) ([]desiredSecret, error) {
	if len(addOn.Status.Registrations) == 0 {
		return nil, nil
	}
	credential, err := c.Store.Load()
	if err != nil {
		return nil, err
	}
	if credential == nil || cluster == "" {
		return nil, errNotYet
	}
	hubID, err := credential.HubID()
	if err != nil {
		return nil, err
	}
	notBefore, err := c.notBefore(ctx)
	if err != nil {
		return nil, err
	}
	var all []desiredSecret
	for _, registration := range addOn.Status.Registrations {
		w, err := c.desiredSecretFor(addOn, cluster, registration, credential)
		if err != nil {
			return nil, err
		}
		if w == nil {
			continue
		}
		w.hubID, w.notBefore = hubID, notBefore
		all = slices.DeleteFunc(all, func(other desiredSecret) bool { return other.id() == w.id() })
		all = append(all, *w)
	}
	return all, nil
}

// notBefore is from when on the hub takes certificates for the cluster.
func (c *Controller) notBefore(ctx context.Context) (time.Time, error) {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.hub.Get(ctx, client.ObjectKey{Name: c.Identity.Cluster}, cluster); err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	return fleet.CredentialsNotBefore(cluster.Annotations)
}

func (c *Controller) desiredSecretFor(
	addOn *addonv1beta1.ManagedClusterAddOn, cluster string, registration addonv1beta1.RegistrationConfig,
	credential *hubkubeconfig.Credential,
) (*desiredSecret, error) {
	w := &desiredSecret{addOn: addOn.Name, cluster: cluster, secret: client.ObjectKey{Namespace: install.Namespace(addOn)}}
	var err error
	switch {
	case registration.Type == addonv1beta1.CustomSigner && registration.CustomSigner != nil:
		custom := registration.CustomSigner
		w.secret.Name = fleet.AddOnClientCertSecret(addOn.Name, custom.SignerName)
		w.request = c.request(addOn.Name, custom.SignerName, pkix.Name{
			CommonName: custom.Subject.User, Organization: custom.Subject.Groups, OrganizationalUnit: custom.Subject.OrganizationUnits,
		})
	case registration.Type == addonv1beta1.KubeClient && c.Driver == addonv1beta1.KubeClientDriverToken:
		w.secret.Name = fleet.AddOnHubKubeconfigSecret(addOn.Name)
		w.kubeconfig, err = c.kubeconfigFor(w, credential, hubkubeconfig.WithToken)
	case registration.Type == addonv1beta1.KubeClient:
		var subject addonv1beta1.KubeClientSubject
		if registration.KubeClient != nil {
			subject = registration.KubeClient.Subject
		}
		w.secret.Name = fleet.AddOnHubKubeconfigSecret(addOn.Name)
		w.request = c.request(addOn.Name, fleet.SignerKubeAPIServerClient, pkix.Name{CommonName: subject.User, Organization: subject.Groups})
		w.kubeconfig, err = c.kubeconfigFor(w, credential, hubkubeconfig.WithCertificate)
	default:
		return nil, nil
	}
	return w, err
}

// errBrokered is for add-ons that want to reach the hub's API server.
var errBrokered = errors.New("the agent of the cluster reaches the hub by gRPC and does not know the address of its API server, which the kubeconfig of " +
	"an add-on has to have: register the agent with --registration-auth=csr, or use an add-on that does not need the API of the hub")

func (c *Controller) kubeconfigFor(w *desiredSecret, credential *hubkubeconfig.Credential, user clientcmdapi.AuthInfo) ([]byte, error) {
	if c.Brokered {
		w.refused = errBrokered
		return nil, nil
	}
	return credential.ForAddOn(user)
}

// request fills in the identity that an add-on has if it names none.
func (c *Controller) request(addOn, signer string, subject pkix.Name) *clientcert.AddOn {
	if subject.CommonName == "" {
		subject.CommonName = fleet.AddOnUser(c.Identity.Cluster, addOn, addOn)
	}
	if len(subject.Organization) == 0 && signer == fleet.SignerKubeAPIServerClient {
		subject.Organization = []string{fleet.AddOnGroup(c.Identity.Cluster, addOn)}
	}
	return &clientcert.AddOn{Name: addOn, SignerName: signer, Subject: subject}
}

// clusterOf is where the agent of an add-on runs, as one of the values of LabelAddOnCredential. It is empty while that is not known, which
// it will be after the wait. The wait starts with the first registration: until then there is nothing to put anywhere.
func (c *Controller) clusterOf(addOn *addonv1beta1.ManagedClusterAddOn) (cluster string, wait time.Duration) {
	hosted, wait := c.agents.Hosted(addOn, c.Clock.Now())
	if len(addOn.Status.Registrations) == 0 {
		c.agents.Forget(client.ObjectKeyFromObject(addOn))
	}
	switch {
	case wait > 0:
		return "", wait
	case hosted:
		return fleet.AddOnCredentialHosted, 0
	default:
		return fleet.AddOnCredentialManaged, 0
	}
}
