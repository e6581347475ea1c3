package kubecontrollers

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/bootstrap"
	certificatescontroller "k8s.io/kubernetes/pkg/controller/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/approver"
	"k8s.io/kubernetes/pkg/controller/certificates/cleaner"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/capstan-io/capstan/internal/controlplane/apiserverconfig"
)

// signingWorkers is how many requests are signed at once.
const signingWorkers = 6

// selected is a factory of informers that see only the objects a selector matches.
func (c *Controllers) selected(client kubernetes.Interface, namespace string, selector fields.Selector) informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactoryWithOptions(client, informerResync,
		informers.WithTransform(cache.TransformStripManagedFields()),
		informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.FieldSelector = selector.String() }))
	c.narrow = append(c.narrow, factory)
	return factory
}

// dynamicRootCA restarts the controllers that copy the root CA into objects whenever the bundle changes.
type dynamicRootCA struct {
	bundle  *apiserverconfig.CABundle
	changed chan struct{}
}

// Enqueue implements dynamiccertificates.Listener.
func (d *dynamicRootCA) Enqueue() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// addRootCAConsumers adds the publisher of kube-root-ca.crt and the issuer of service account token Secrets, which both
// embed the bundle.
func (c *Controllers) addRootCAConsumers(ctx context.Context) error {
	bundle, err := apiserverconfig.NewCABundle("root-ca", c.config.RootCAFile)
	if err != nil {
		return err
	}
	c.reloadable = &dynamicRootCA{bundle: bundle, changed: make(chan struct{}, 1)}
	bundle.AddListener(c.reloadable)
	publish, err := c.rootCAPublisher()
	if err != nil {
		return err
	}
	issue, err := c.tokenIssuer(klog.FromContext(ctx))
	if err != nil {
		return err
	}
	first, err := c.withRootCA(bundle.CurrentCABundleContent(), publish, issue)
	if err != nil {
		return err
	}
	c.Add(func(ctx context.Context) { bundle.Run(ctx, 1) })
	c.Add(func(ctx context.Context) { c.followRootCA(ctx, first, publish, issue) })
	return nil
}

// consumer prepares a controller with a CA bundle and returns how to run it.
type consumer func(bundle []byte) (func(context.Context), error)

func (c *Controllers) withRootCA(bundle []byte, consumers ...consumer) ([]func(context.Context), error) {
	var runs []func(context.Context)
	for _, prepare := range consumers {
		run, err := prepare(bundle)
		if err != nil {
			return nil, err
		}
		runs = append(runs, run)
	}
	return runs, nil
}

func (c *Controllers) followRootCA(ctx context.Context, runs []func(context.Context), consumers ...consumer) {
	for {
		round, stop := context.WithCancel(ctx)
		var running sync.WaitGroup
		for _, run := range runs {
			running.Go(func() { run(round) })
		}
		select {
		case <-ctx.Done():
		case <-c.reloadable.changed:
		}
		stop()
		running.Wait()
		if ctx.Err() != nil {
			return
		}
		next, err := c.withRootCA(c.reloadable.bundle.CurrentCABundleContent(), consumers...)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The new root CA is not published until the next restart")
			next = nil
		}
		runs = next
	}
}

func (c *Controllers) rootCAPublisher() (consumer, error) {
	client, err := c.client("root-ca-cert-publisher")
	if err != nil {
		return nil, err
	}
	// A hub may hold many ConfigMaps; the publisher cares about one name.
	byName := c.selected(client, metav1.NamespaceAll,
		fields.OneTermEqualSelector(metav1.ObjectNameField, rootcacertpublisher.RootCACertConfigMapName))
	return func(bundle []byte) (func(context.Context), error) {
		publisher, err := rootcacertpublisher.NewPublisher(byName.Core().V1().ConfigMaps(), c.informers.Core().V1().Namespaces(), client, bundle)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) { publisher.Run(ctx, 1) }, nil
	}, nil
}

func (c *Controllers) addServiceAccounts(ctx context.Context) error {
	client, err := c.client("service-account-controller")
	if err != nil {
		return err
	}
	controller, err := serviceaccountcontroller.NewServiceAccountsController(klog.FromContext(ctx),
		c.informers.Core().V1().ServiceAccounts(), c.informers.Core().V1().Namespaces(), client,
		serviceaccountcontroller.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	c.Add(func(ctx context.Context) { controller.Run(ctx, 2) })
	return nil
}

// addCertificates signs what is approved with the client CA, approves kubelets' own requests, and removes old ones.
func (c *Controllers) addCertificates(ctx context.Context) error {
	client, err := c.client("certificate-controller")
	if err != nil {
		return err
	}
	requests := c.informers.Certificates().V1().CertificateSigningRequests()
	clusters, err := metadata.NewForConfig(c.clientConfig("certificate-controller"))
	if err != nil {
		return err
	}
	signing, err := newSigner(client, clusters, c.config.SigningCertFile, c.config.SigningKeyFile, c.config.SigningDuration)
	if err != nil {
		return err
	}
	sign := certificatescontroller.NewCertificateController(ctx, "csrsigning", client, requests, signing.handle)
	c.Add(signing.follow)
	c.Add(func(ctx context.Context) { sign.Run(ctx, signingWorkers) })
	approve := approver.NewCSRApprovingController(ctx, client, requests)
	c.Add(func(ctx context.Context) { approve.Run(ctx, 1) })
	clean := cleaner.NewCSRCleanerController(client.CertificatesV1().CertificateSigningRequests(), requests)
	c.Add(func(ctx context.Context) { clean.Run(ctx, 1) })
	return nil
}

// addBootstrapTokens signs ConfigMap kube-public/cluster-info with the bootstrap tokens and removes expired tokens.
func (c *Controllers) addBootstrapTokens(context.Context) error {
	signerClient, err := c.client("bootstrap-signer")
	if err != nil {
		return err
	}
	tokens := c.selected(signerClient, metav1.NamespaceSystem,
		fields.OneTermEqualSelector("type", string(bootstrapapi.SecretTypeBootstrapToken))).Core().V1().Secrets()
	info := c.selected(signerClient, metav1.NamespacePublic,
		fields.OneTermEqualSelector(metav1.ObjectNameField, bootstrapapi.ConfigMapClusterInfo)).Core().V1().ConfigMaps()
	sign, err := bootstrap.NewSigner(signerClient, tokens, info, bootstrap.DefaultSignerOptions())
	if err != nil {
		return err
	}
	c.Add(sign.Run)
	cleanerClient, err := c.client("token-cleaner")
	if err != nil {
		return err
	}
	clean, err := bootstrap.NewTokenCleaner(cleanerClient, tokens, bootstrap.DefaultTokenCleanerOptions())
	if err != nil {
		return err
	}
	c.Add(clean.Run)
	return nil
}
