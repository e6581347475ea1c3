package controlplane

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokenObjects reads what a service account token is bound to. Of the things a token can name a hub has service
// accounts and Secrets; a token bound to anything else is that of another cluster.
type tokenObjects struct {
	accounts corev1listers.ServiceAccountLister
	secrets  corev1listers.SecretLister
}

func newTokenObjects(factory informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter {
	return tokenObjects{accounts: factory.Core().V1().ServiceAccounts().Lister(), secrets: factory.Core().V1().Secrets().Lister()}
}

func (t tokenObjects) GetServiceAccount(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	return t.accounts.ServiceAccounts(namespace).Get(name)
}

func (t tokenObjects) GetSecret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return t.secrets.Secrets(namespace).Get(name)
}

func (t tokenObjects) GetPod(_ context.Context, _, name string) (*corev1.Pod, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (t tokenObjects) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func (t tokenObjects) GetValidatingWebhookConfiguration(_ context.Context,
	name string) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("validatingwebhookconfigurations"), name)
}

func (t tokenObjects) GetMutatingWebhookConfiguration(_ context.Context,
	name string) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
	return nil, apierrors.NewNotFound(admissionregistrationv1.Resource("mutatingwebhookconfigurations"), name)
}
