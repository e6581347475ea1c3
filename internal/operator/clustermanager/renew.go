package clustermanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	deployhub "github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
)

// renewAfter renews what is installed, after an installation or a removal that may have failed: a hub that did not answer is not asked
// again.
func (c *Controller) renewAfter(ctx context.Context, cm *operatorv1.ClusterManager, failure error) (time.Duration, error) {
	if _, isUnreached := errors.AsType[unreachedError](failure); isUnreached {
		return c.renewWithoutHub(ctx, cm)
	}
	return c.renew(ctx, cm)
}

// renew keeps an installed hub working that is refused, cannot be applied or is being removed: it renews the certificates that it serves
// with, the authorities that its API server trusts, and the tokens of a hosted one. It returns how long nothing is due.
func (c *Controller) renew(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	if cm.Annotations[fleet.AnnotationInstalledMode] == "" {
		return 0, nil
	}
	hub, access, err := c.hub(ctx, cm)
	if err != nil {
		_, renewalErr := c.renewWithoutHub(ctx, cm)
		return 0, errors.Join(err, renewalErr)
	}
	return c.renewFor(ctx, c.plannedOf(cm), hub, access)
}

// renewWithoutHub renews what is on the management cluster alone: the certificates.
func (c *Controller) renewWithoutHub(ctx context.Context, cm *operatorv1.ClusterManager) (time.Duration, error) {
	if cm.Annotations[fleet.AnnotationInstalledMode] == "" {
		return 0, nil
	}
	return c.renewCertificates(ctx, c.plannedOf(cm), nil)
}

// plannedOf is what is planned, as far as that is known of any installed hub.
func (c *Controller) plannedOf(cm *operatorv1.ClusterManager) planned {
	return newPlanned(cm, inputs{namespace: namespaceOf(cm), syncLabels: c.SyncLabels})
}

// renewFor renews with the hub, which is not changed if it is that of another, and is asked once if it does not answer.
func (c *Controller) renewFor(ctx context.Context, p planned, hub *apply.Cluster, access *rest.Config) (time.Duration, error) {
	notOwn := c.checkOwner(ctx, p.ClusterManager, hub)
	if _, isUnreached := errors.AsType[unreachedError](notOwn); isUnreached {
		due, err := c.renewCertificates(ctx, p, nil)
		return due, errors.Join(notOwn, err)
	}
	var tokensDue time.Duration
	var tokensErr error
	if p.hosted {
		tokensDue, tokensErr = c.renewTokens(ctx, p, hub, access)
	}
	if notOwn != nil {
		hub = nil
	}
	due, err := c.renewCertificates(ctx, p, hub)
	return retry.Soonest(due, tokensDue), errors.Join(notOwn, tokensErr, err)
}

// renewTokens renews those of the service accounts of a hosted hub that there are.
func (c *Controller) renewTokens(ctx context.Context, p planned, hub *apply.Cluster, access *rest.Config) (time.Duration, error) {
	var names []types.NamespacedName
	for _, kubeconfig := range p.kubeconfigs() {
		names = append(names, kubeconfig.Secret)
	}
	renewed, good, err := c.RenewedKubeconfigs(ctx, hub, access, names...)
	if err != nil {
		return 0, err
	}
	frame.AddLabels(p.labels(), renewed...)
	return good, c.Management.Apply(ctx, p.Name, renewed...)
}

// renewCertificates renews those that the hub serves with. The authority that signs them stays while its API server cannot be told to
// trust another one: the hub is nil if it may not be changed.
func (c *Controller) renewCertificates(ctx context.Context, p planned, hub *apply.Cluster) (due time.Duration, err error) {
	if p.certificates, err = c.renewedCertificates(ctx, p, hub == nil); err != nil || p.certificates == nil {
		return 0, err
	}
	var untold error
	if hub != nil {
		untold = trustRenewed(ctx, hub, p)
	}
	if untold != nil {
		if p.certificates, err = c.renewedCertificates(ctx, p, true); err != nil || p.certificates == nil {
			return 0, errors.Join(untold, err)
		}
	}
	renewed := append([]client.Object{p.certificates.Authority, p.certificates.Bundle}, objects(p.certificates.Serving)...)
	frame.AddLabels(p.labels(), renewed...)
	if err := errors.Join(untold, c.Management.Apply(ctx, p.Name, renewed...)); err != nil {
		return 0, err
	}
	return p.certificates.Due.Sub(c.Clock.Now()), nil
}

// renewedCertificates are those that the hub serves with, for the same hosts: another version, or an earlier spec, has installed it. They
// are nil if there are none.
func (c *Controller) renewedCertificates(ctx context.Context, p planned, keepAuthority bool) (*servingcerts.Certificates, error) {
	names, err := c.served(ctx, p.namespace)
	if err != nil {
		return nil, err
	}
	stored, err := c.storedCertificates(ctx, p, names)
	if err != nil || len(stored.Serving) == 0 {
		return nil, err
	}
	stored.KeepAuthority = keepAuthority
	var servers []servingcerts.Server
	for _, name := range names {
		secret := stored.Serving[name]
		if secret == nil {
			continue
		}
		if hosts := servingcerts.HostsOf(secret); len(hosts) > 0 || !stored.Own(secret) {
			servers = append(servers, servingcerts.Server{Secret: name, Hosts: hosts})
		}
	}
	return servingcerts.Renew(c.Clock.Now(), p.namespace, authorityName, servers, stored)
}

// served are the Secrets with serving certificates that the hub has, as far as they may be read: whatever the spec says by now.
func (c *Controller) served(ctx context.Context, namespace string) (names []string, err error) {
	for _, name := range []string{fleet.SecretRegistrationServing, fleet.SecretWorkServing, fleet.SecretAddOnServing,
		fleet.SecretGRPCServing, fleet.SecretPlacementDebugServing} {
		found, err := c.getIfExists(ctx, namespace, name, &corev1.Secret{})
		if err != nil && !apiclient.Denied(err) {
			return nil, err
		}
		if found {
			names = append(names, name)
		}
	}
	return names, nil
}

// trustRenewed has the API server of the hub trust the authorities of now, where it calls webhooks. Nothing else of these changes, and
// nothing of a webhook whose certificate is not known: it may serve with one of a user.
func trustRenewed(ctx context.Context, hub *apply.Cluster, p planned) error {
	names := deployhub.Names{Namespace: p.namespace, ClusterManager: p.Name}
	failures := []error{applyWebhooks(ctx, hub, p.Name, p.webhooks().configurations(names), false)}
	for _, crd := range p.crds() {
		if err := trustConversion(ctx, hub.Client, crd); err != nil {
			failures = append(failures, fmt.Errorf("renew the authorities that the conversion of %s trusts: %w", crd.Name, err))
		}
	}
	return errors.Join(failures...)
}

// trustConversion gives the conversion of a CRD that exists the authorities of that which is desired.
func trustConversion(ctx context.Context, hub client.Client, desired *apiextensionsv1.CustomResourceDefinition) error {
	current := conversionConfig(desired)
	if current == nil {
		return nil
	}
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := live.DeepCopy()
	if config := conversionConfig(live); config != nil && len(current.CABundle) > 0 {
		config.CABundle = current.CABundle
	}
	_, err := patch.Object(ctx, hub, live, before)
	return err
}

// conversionConfig is how the webhook is reached that converts the objects of a CRD; nil if there is none.
func conversionConfig(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.WebhookClientConfig {
	if conversion := crd.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
		return conversion.Webhook.ClientConfig
	}
	return nil
}
