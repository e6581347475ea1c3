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

// Registration is how the agent of an add-on gets access to the hub.
type Registration struct {
	// Configs are what the agent registers for on a cluster: access to the API server of the hub, certificates of other
	// signers, or, if there are none, nothing. It is required. [KubeClient] makes the usual one.
	Configs func(ctx context.Context, installation Installation) ([]addonv1beta1.RegistrationConfig, error)

	// Permissions are the RBAC objects that give the agent its rights on the hub; nil, or none, gives it no rights. What is
	// returned is applied before the agent is deployed, and what is no longer returned is deleted; all of it
	// goes with the ManagedClusterAddOn, whatever its namespace. It may return [ErrSubjectNotReady]. The objects are Roles, ClusterRoles
	// and their bindings, and no two clusters may share one; what all of them share is best installed with the manager. [BindClusterRole]
	// and its like make bindings to the right identity.
	Permissions func(ctx context.Context, installation Installation) ([]client.Object, error)

	// Approve decides on a certificate request of the agent that asks for one of its Configs, and that was made by
	// the agent of the right cluster; others are never approved. nil approves all of these. A request that is not approved waits for a
	// person; it is asked about again when the add-on's registrations or configurations change, and when its manager is triggered.
	Approve func(ctx context.Context, installation Installation, csr *certificatesv1.CertificateSigningRequest) (bool, error)

	// Sign returns the certificates, PEM-encoded, for an approved request to a signer other than that of the API server; nil leaves
	// it to somebody else. [SignWith] makes the usual one. After an error it is asked again, in the end once a minute; after no certificate
	// when the add-on's registrations or configurations change, and when its manager is triggered.
	Sign func(ctx context.Context, installation Installation, csr *certificatesv1.CertificateSigningRequest) ([]byte, error)
}

// ErrSubjectNotReady is for Permissions that need to know as whom the agent acts on the hub while status.registrations
// does not tell yet: the agent gets a token, say, whose service account is still to be made. The condition
// RegistrationApplied then says PermissionConfigPending.
var ErrSubjectNotReady = errors.New("the identity of the agent on the hub is not known yet")

// KubeClient is the registration for access to the API server of the hub, with the identities that every add-on has.
//
// The agent's name is part of its user name, so that several agents of an add-on on one cluster can be told apart.
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

// SignWith returns a [Registration.Sign] that issues certificates of a certification authority. caCert and caKey are its
// certificate and its key, PEM-encoded. Certificates are valid as long as the request asks for, at most for validity, and
// never longer than the authority itself; 0 means 24 hours. SignWith fails if certificate and key are unusable or do not belong
// together.
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
