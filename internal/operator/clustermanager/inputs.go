package clustermanager

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
)

// authorityName is the prefix of the common name of a hub's certificate authority.
const authorityName = "cluster-manager-webhook"

// inputs reads what the plan depends on.
func (c *Controller) inputs(ctx context.Context, cm *operatorv1.ClusterManager) (inputs, error) {
	in := inputs{namespace: namespaceOf(cm), image: c.Image, agentImage: c.agentImage, syncLabels: c.SyncLabels}
	var err error
	if in.replicas, err = c.ReplicasFor(ctx, hosted(cm), cm.Spec.NodePlacement); err != nil {
		return in, err
	}
	if in.pullSecret, err = c.OwnSecret(ctx, c.PullSecret); err != nil {
		return in, err
	}
	profile, err := c.TLSProfile(ctx)
	if err != nil {
		return in, err
	}
	in.tlsFlags = frame.TLSFlags(profile)
	if in.grpc, err = c.grpcInputs(ctx, cm); err != nil {
		return in, err
	}
	if in.workDriver, err = c.workDriverConfig(ctx, cm); err != nil {
		return in, err
	}
	in.formerServices, err = c.formerServices(ctx, cm)
	return in, err
}

// formerServices reports whether there are still all Services of webhooks that an earlier version has named after the ClusterManager: they
// go when the API server of the hub calls the others.
func (c *Controller) formerServices(ctx context.Context, cm *operatorv1.ClusterManager) (bool, error) {
	if cm.Name+"-" == servicePrefix {
		return false, nil
	}
	for _, webhook := range []string{registrationWebhook, workWebhook, addOnWebhook} {
		service := &corev1.Service{}
		found, err := c.getIfExists(ctx, namespaceOf(cm), cm.Name+"-"+webhook, service)
		if err != nil {
			return false, err
		}
		if !found || !service.DeletionTimestamp.IsZero() || service.Labels[fleet.LabelCreatedByClusterManager] != cm.Name {
			return false, nil
		}
	}
	return true, nil
}

// certificates are those that the hub should have now.
func (c *Controller) certificates(ctx context.Context, p planned) (*servingcerts.Certificates, error) {
	var names []string
	for _, server := range p.servers() {
		if _, err := c.Secrets.Follow(ctx, server.Secret); err != nil { // users may store their own
			return nil, err
		}
		names = append(names, server.Secret)
	}
	stored, err := c.storedCertificates(ctx, p, names)
	if err != nil {
		return nil, err
	}
	return servingcerts.Renew(c.Clock.Now(), p.namespace, authorityName, p.servers(), stored)
}

// storedCertificates are what the hub has, with the serving certificates in Secrets of those names. It is read from the API server: a cache
// that does not have a certificate authority yet that was just made would have another one made.
func (c *Controller) storedCertificates(ctx context.Context, p planned, names []string) (servingcerts.Stored, error) {
	stored := servingcerts.Stored{Serving: map[string]*corev1.Secret{}, Own: func(s *corev1.Secret) bool {
		return s.Labels[fleet.LabelCreatedByClusterManager] == p.Name
	}}
	authority, bundle := &corev1.Secret{}, &corev1.ConfigMap{}
	if found, err := c.getIfExists(ctx, p.namespace, fleet.SecretSigner, authority); err != nil {
		return stored, err
	} else if found {
		stored.Authority = authority
	}
	if found, err := c.getIfExists(ctx, p.namespace, fleet.ConfigMapCABundle, bundle); err != nil {
		return stored, err
	} else if found {
		stored.Bundle = bundle
	}
	for _, name := range names {
		secret := &corev1.Secret{}
		if found, err := c.getIfExists(ctx, p.namespace, name, secret); err != nil {
			return stored, err
		} else if found {
			stored.Serving[name] = secret
		}
	}
	return stored, nil
}

// mayNotExplain reports whether the operator may not keep the certificate under which a hub explains placements. The rule that is missing
// is reported if the hub is to explain them.
func (c *Controller) mayNotExplain(ctx context.Context, p planned) (bool, error) {
	if !(placement{p}).servesExplanations() {
		c.Secrets.Unfollow(fleet.SecretPlacementDebugServing)
		return false, nil
	}
	permitted, err := c.Secrets.Follow(ctx, fleet.SecretPlacementDebugServing)
	return !permitted, err
}

// getIfExists reads an object from the management cluster, and reports whether it exists.
func (c *Controller) getIfExists(ctx context.Context, namespace, name string, into client.Object) (bool, error) {
	err := c.Management.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// kubeconfigs are those by which the components of a hosted hub reach it.
func (p planned) kubeconfigs() (desired []frame.Kubeconfig) {
	for _, name := range p.accountNames() {
		desired = append(desired, frame.Kubeconfig{Secret: types.NamespacedName{Namespace: p.namespace, Name: accountSecret(name)},
			Account: types.NamespacedName{Namespace: p.namespace, Name: name}})
	}
	return desired
}
