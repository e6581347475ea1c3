package kubecontrollers

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/capstan-io/capstan/internal/controlplane/serviceaccounttoken"
)

const (
	// renewalAhead is how long before the end of its key a token in a Secret is signed again. Copies of the old one end
	// then, which is at least a year after they could be made.
	renewalAhead = 30 * 24 * time.Hour

	renewalInterval = 24 * time.Hour

	// renewalRetry is the pause after tokens could not be signed again.
	renewalRetry = time.Minute
)

// tokenIssuer puts a token into each Secret that requests one, and renews those tokens before their key ends.
func (c *Controllers) tokenIssuer(logger klog.Logger) (consumer, error) {
	client, err := c.client("tokens-controller")
	if err != nil {
		return nil, err
	}
	secrets := c.selected(client, metav1.NamespaceAll, fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)))
	generator := c.config.ServiceAccountKeys.Generator(serviceaccount.LegacyIssuer)
	c.addTokenRenewal(client, secrets, generator)
	return func(bundle []byte) (func(context.Context), error) {
		issuer, err := serviceaccountcontroller.NewTokensController(logger, c.informers.Core().V1().ServiceAccounts(),
			secrets.Core().V1().Secrets(), client,
			serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: bundle})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) { issuer.Run(ctx, 2) }, nil
	}, nil
}

func (c *Controllers) addTokenRenewal(client kubernetes.Interface, secrets informers.SharedInformerFactory,
	generator serviceaccount.TokenGenerator) {
	accounts := c.informers.Core().V1().ServiceAccounts()
	r := &tokenRenewal{
		keys:      c.config.ServiceAccountKeys,
		generator: generator,
		client:    client,
		accounts:  accounts.Lister(),
		secrets:   secrets.Core().V1().Secrets().Lister(),
		synced:    []cache.InformerSynced{accounts.Informer().HasSynced, secrets.Core().V1().Secrets().Informer().HasSynced},
	}
	c.Add(r.run)
}

// tokenRenewal signs the tokens in Secrets again before their key ends. They have no end of their own.
type tokenRenewal struct {
	keys      *serviceaccounttoken.Keys
	generator serviceaccount.TokenGenerator
	client    kubernetes.Interface
	accounts  corev1listers.ServiceAccountLister
	secrets   corev1listers.SecretLister
	synced    []cache.InformerSynced
}

func (r *tokenRenewal) run(ctx context.Context) {
	if !cache.WaitForCacheSync(ctx.Done(), r.synced...) {
		return
	}
	for {
		pause := renewalInterval
		if err := r.renew(ctx, time.Now()); err != nil && ctx.Err() == nil {
			pause = renewalRetry
			klog.FromContext(ctx).Error(err, "Some service account token Secrets have tokens of a key that ends soon; trying again", "after", pause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (r *tokenRenewal) renew(ctx context.Context, now time.Time) error {
	secrets, err := r.secrets.List(labels.Everything())
	if err != nil {
		return err
	}
	var failures []error
	for _, secret := range secrets {
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		// One without a token gets it from the tokens controller.
		if token != "" && now.After(r.keys.VerifiesUntil(token).Add(-renewalAhead)) {
			failures = append(failures, r.sign(ctx, secret))
		}
	}
	return errors.Join(failures...)
}

func (r *tokenRenewal) sign(ctx context.Context, secret *corev1.Secret) error {
	account, err := r.accounts.ServiceAccounts(secret.Namespace).Get(secret.Annotations[corev1.ServiceAccountNameKey])
	if apierrors.IsNotFound(err) {
		return nil // the tokens controller removes the Secret
	}
	if err != nil {
		return err
	}
	claims, private := serviceaccount.LegacyClaims(*account, *secret)
	token, err := r.generator.GenerateToken(ctx, claims, private)
	if err != nil {
		return err
	}
	secret = secret.DeepCopy()
	secret.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	_, err = r.client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
