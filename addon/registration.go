package addon

import (
	"context"
	"errors"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon/internal/sign/authority"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Registration sets how the agent of an add-on gets access to the hub.
type Registration struct {
	// Configs returns what the agent registers for on a cluster: access to the API server of the hub, certificates of other signers, or
	// nothing. It is required. [KubeClient] returns the usual one.
	Configs func(ctx context.Context, installation Installation) ([]addonv1beta1.RegistrationConfig, error)

	// Permissions returns the RBAC objects that give the agent its rights on the hub. nil, or no objects, gives it none. The objects are
	// applied before the agent is deployed. Objects that are no longer returned are deleted, and all are deleted with the
	// ManagedClusterAddOn, whatever their namespace. Permissions may return [ErrSubjectNotReady]. The objects are Roles, ClusterRoles and
	// their bindings, and no two clusters may share one; objects for all clusters are best installed with the manager. [BindClusterRole]
	// and similar functions return bindings to the right identity. An object of the same name that another manager has applied for the add-on
	// on the cluster, by its labels or its owner, is replaced by the returned one.
	Permissions func(ctx context.Context, installation Installation) ([]client.Object, error)

	// Approve decides on a certificate request of the agent for one of its Configs, made by the agent of the right cluster; other
	// requests are never approved. nil approves all of these. A request that is not approved waits for an administrator. Approve is
	// called for it again when the add-on's registrations or configurations change, and when its manager is triggered.
	Approve func(ctx context.Context, installation Installation, csr *certificatesv1.CertificateSigningRequest) (bool, error)

	// Sign returns the certificates, PEM-encoded, for an approved request to a signer other than that of the API server. nil leaves the
	// request to another signer. [SignWith] returns the usual function. After an error it is called again, in the end once a minute; if
	// it returns no certificate, when the add-on's registrations or configurations change, and when its manager is triggered.
	Sign func(ctx context.Context, installation Installation, csr *certificatesv1.CertificateSigningRequest) ([]byte, error)
}

// ErrSubjectNotReady is returned by Permissions that need the agent's identity on the hub while status.registrations does not have it
// yet: for example, when the agent gets a token whose service account does not exist yet. The condition RegistrationApplied then has
// the reason PermissionConfigPending.
var ErrSubjectNotReady = errors.New("the identity of the agent on the hub is not known yet")

// KubeClient returns the registration for access to the API server of the hub, with the identity that every add-on has. agentName is
// part of the user name, so that several agents of an add-on on one cluster can be distinguished.
func KubeClient(installation Installation, agentName string) addonv1beta1.RegistrationConfig {
	cluster, addOn := installation.Cluster.Name, installation.AddOn.Name
	return addonv1beta1.RegistrationConfig{
		Type: addonv1beta1.KubeClient,
		KubeClient: &addonv1beta1.KubeClientConfig{Subject: addonv1beta1.KubeClientSubject{
			User:   fleet.AddOnUser(cluster, addOn, agentName),
			Groups: fleet.AddOnGroups(cluster, addOn),
		}},
	}
}

// SignWith returns a [Registration.Sign] that issues certificates of a certification authority. caCert and caKey are its certificate
// and its key, PEM-encoded. Certificates are valid as long as the request specifies, at most for validity, and never longer than the
// authority itself. A validity of 0 means 24 hours. SignWith fails if certificate and key are unusable or do not belong together.
func SignWith(caCert, caKey []byte, validity time.Duration) (func(context.Context, Installation,
	*certificatesv1.CertificateSigningRequest) ([]byte, error), error) {
	ca, err := authority.New(caCert, caKey, validity)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, _ Installation, csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
		return ca.Sign(csr, time.Now())
	}, nil
}
