package aggregated

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/utils/clock"
)

const (
	validity = 365 * 24 * time.Hour
	// checkInterval is how often it is checked whether another process has renewed the certificate, or somebody has changed the APIService.
	checkInterval = time.Minute
	// retryInterval is that until there is a certificate at all.
	retryInterval = time.Second
	// readInterval is how long clients may take to read what verifies a certificate, before it is shown to them.
	readInterval = 10 * time.Minute
	// maxBefore is how many certificates of before stay in the caBundle: those of two renewals, each with its authority.
	maxBefore = 4
)

// certificate is a serving certificate that this process makes, shares with others by a Secret, and has the API server verify by the
// caBundle of the APIService. It is renewed when a fifth of its time is left.
type certificate struct {
	// apiService is the name of the APIService, and secret that of the Secret in the namespace of its Service.
	apiService, secret string
	// hosts are the names and IP addresses that it is valid for, besides that of the Service, and caSecret the name of the Secret in which
	// clients find what verifies it; empty if the API server is the only one.
	hosts    []string
	caSecret string
	// published is called with what verifies it; nil is not.
	published func(ca []byte)

	client   kubernetes.Interface
	services apiregistrationclient.APIServicesGetter
	clock    clock.Clock

	mu        sync.Mutex
	chain     []byte
	key       []byte
	listeners []dynamiccertificates.Listener

	// next is the chain to be shown after this one, and verified when clients could read what verifies it.
	next     []byte
	verified time.Time
}

func newCertificate(config *rest.Config, apiService, secret string) (*certificate, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	services, err := apiregistrationclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &certificate{apiService: apiService, secret: secret, client: client, services: services, clock: clock.RealClock{}}, nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) Name() string { return c.secret }

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (c *certificate) CurrentCertKeyContent() (chain, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chain, c.key
}

// AddListener implements dynamiccertificates.Notifier.
func (c *certificate) AddListener(listener dynamiccertificates.Listener) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listeners = append(c.listeners, listener)
}

// await returns when there is a certificate, or ctx ends.
func (c *certificate) await(ctx context.Context) {
	for {
		err := c.renew(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).Error(err, "There is no serving certificate yet")
		select {
		case <-ctx.Done():
			return
		case <-c.clock.After(retryInterval):
		}
	}
}

// keep renews the certificate until ctx ends.
func (c *certificate) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.clock.After(checkInterval):
			if err := c.renew(ctx); err != nil {
				klog.FromContext(ctx).Error(err, "Cannot look after the serving certificate")
			}
		}
	}
}

// renew takes over the certificate of the Secret, or makes another one if that is of no use. It is shown once clients verify it.
func (c *certificate) renew(ctx context.Context) error {
	api, err := c.services.APIServices().Get(ctx, c.apiService, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get APIService %s, which says by which name this server is reached: %w", c.apiService, err)
	}
	if api.Spec.Service == nil {
		return fmt.Errorf("APIService %s names no Service, which has to lead to this server: set spec.service", c.apiService)
	}
	namespace, host := api.Spec.Service.Namespace, hostOf(api)
	secret, err := c.client.CoreV1().Secrets(namespace).Get(ctx, c.secret, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("get Secret %s/%s with the serving certificate: %w", namespace, c.secret, err)
	}
	missing := err != nil
	chain, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if missing || !c.good(chain, key, host) {
		if chain, key, err = c.replace(ctx, api, secret, missing, namespace, host); err != nil {
			return err
		}
	}
	if err := c.haveVerified(ctx, api, chain); err != nil {
		return err
	}
	if err := c.publish(ctx, namespace, api.Spec.CABundle); err != nil {
		return err
	}
	if !c.isAwaited(chain, api.Spec.CABundle, host) {
		c.use(chain, key)
	}
	if c.published != nil {
		c.published(api.Spec.CABundle)
	}
	return nil
}

// publish has clients find what verifies the certificate.
func (c *certificate) publish(ctx context.Context, namespace string, ca []byte) error {
	if c.caSecret == "" {
		return nil
	}
	secrets := c.client.CoreV1().Secrets(namespace)
	secret, err := secrets.Get(ctx, c.caSecret, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.caSecret},
			Data: map[string][]byte{corev1.ServiceAccountRootCAKey: ca}}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	case err == nil && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], ca):
		secret.Data = map[string][]byte{corev1.ServiceAccountRootCAKey: ca}
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("store what verifies the serving certificate in Secret %s/%s: %w", namespace, c.caSecret, err)
	}
	return nil
}

// good says whether a certificate is still to be used.
func (c *certificate) good(chain, key []byte, host string) bool {
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return false
	}
	now, due := c.clock.Now(), pair.Leaf.NotAfter.Add(-pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)/5)
	return !now.Before(pair.Leaf.NotBefore) && now.Before(due) && // its maker's clock may have been ahead
		c.isFor(pair.Leaf, host)
}

// isFor says whether a certificate is valid for a host and for all other names by which clients know this process.
func (c *certificate) isFor(leaf *x509.Certificate, host string) bool {
	return !slices.ContainsFunc(append([]string{host}, c.hosts...), func(host string) bool {
		return !slices.Contains(leaf.DNSNames, host) && leaf.VerifyHostname(host) != nil
	})
}

// replace makes a certificate and stores it. Of several processes that do so at the same time, one does not fail. Who deletes the Secret
// does not trust what was in it any more: before there is another one, clients verify the new certificate alone.
func (c *certificate) replace(ctx context.Context, api *apiregistrationv1.APIService, old *corev1.Secret, missing bool,
	namespace, host string) (chain, key []byte, err error) {
	options := certutil.SelfSignedCertKeyOptions{Host: host, MaxAge: validity}
	for _, host := range c.hosts {
		if ip := net.ParseIP(host); ip != nil {
			options.AlternateIPs = append(options.AlternateIPs, ip)
		} else {
			options.AlternateDNS = append(options.AlternateDNS, host)
		}
	}
	chain, key, err = certutil.GenerateSelfSignedCertKeyWithOptions(options)
	if err != nil {
		return nil, nil, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.secret}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key}}
	secrets := c.client.CoreV1().Secrets(namespace)
	if missing {
		api.Spec.CABundle = nil
		if err := c.haveVerified(ctx, api, chain); err != nil {
			return nil, nil, err
		}
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		secret.ResourceVersion = old.ResourceVersion
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("store the serving certificate in Secret %s/%s: %w", namespace, c.secret, err)
	}
	return chain, key, nil
}

// haveVerified puts a certificate into the caBundle of the APIService, if it is not there, in front of those that other processes still
// show. It fails if the APIService has changed meanwhile: what another process has put there would be lost.
func (c *certificate) haveVerified(ctx context.Context, api *apiregistrationv1.APIService, chain []byte) error {
	if bytes.Contains(api.Spec.CABundle, chain) {
		return nil
	}
	before, err := c.stillShown(api.Spec.CABundle)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": api.ResourceVersion},
		"spec":     map[string]any{"caBundle": append(bytes.Clone(chain), before...)},
	})
	if err != nil {
		return err
	}
	changed, err := c.services.APIServices().Patch(ctx, c.apiService, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("put the serving certificate into caBundle of APIService %s: %w", c.apiService, err)
	}
	*api = *changed
	return nil
}

// stillShown are the newest of those certificates of a bundle that have not expired.
func (c *certificate) stillShown(bundle []byte) ([]byte, error) {
	all, _ := certutil.ParseCertsPEM(bundle) // which is an error without any
	valid := slices.DeleteFunc(all, func(one *x509.Certificate) bool { return c.clock.Now().After(one.NotAfter) })
	return certutil.EncodeCertificates(valid[:min(len(valid), maxBefore)]...)
}

// isAwaited says whether a certificate is not to be shown yet: clients verify the one that is shown, and may not have read yet what
// verifies the other.
func (c *certificate) isAwaited(chain, verified []byte, host string) bool {
	if !bytes.Equal(c.next, chain) {
		c.next, c.verified = chain, c.clock.Now()
	}
	shown, key := c.CurrentCertKeyContent()
	pair, err := tls.X509KeyPair(shown, key)
	return err == nil && bytes.Contains(verified, shown) && c.clock.Now().Before(pair.Leaf.NotAfter) && c.isFor(pair.Leaf, host) &&
		c.clock.Since(c.verified) < readInterval
}

func (c *certificate) use(chain, key []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if bytes.Equal(c.chain, chain) {
		return
	}
	c.chain, c.key = chain, key
	for _, listener := range c.listeners {
		listener.Enqueue()
	}
}
