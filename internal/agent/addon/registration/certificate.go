package registration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/agent/registration/clientcert"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// reconcileCertificate requests a certificate if there is no valid one or it is due for renewal, and saves what the Secret is to hold.
func (c *Controller) reconcileCertificate(ctx context.Context, addOn *addonv1beta1.ManagedClusterAddOn, w *desiredSecret,
	secret *corev1.Secret) secretState {
	now, err := c.readCertificate(w, secret)
	if err == nil && c.Clock.Now().Before(now.due) {
		c.requests.drop(w.id())
		now.err = c.save(ctx, w, secret.Data[fleet.KeyTLSCert], secret.Data[fleet.KeyTLSKey])
		return now
	}
	key := c.pendingKey(w.id(), secret.Data[fleet.KeyTLSKey])
	//nolint:contextcheck // the request goes on when this reconcile has ended
	obtained := c.requests.obtain(w.id(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(addOn)}, &clientcert.Requester{
		Hub: c.Uncached, Keys: key, Identity: c.Identity, Author: c.Author, AddOn: w.request, Renews: true, Brokered: c.Brokered,
		NotBefore: w.notBefore, Lifetime: c.CertificateLifetime, Record: c.Record,
	})
	now.due = c.Clock.Now().Add(resync)
	if err != nil {
		now.lack = err.Error()
	}
	if obtained == nil {
		return now
	}
	now.lack = ""
	if now.err = obtained.err; now.err != nil {
		return now
	}
	if now.err = c.save(ctx, w, obtained.certificate, obtained.key); now.err != nil {
		return now
	}
	c.renewed[w.id()] = c.Clock.Now()
	now, err = c.readCertificate(w,
		&corev1.Secret{Data: map[string][]byte{fleet.KeyTLSCert: obtained.certificate, fleet.KeyTLSKey: obtained.key}})
	if err != nil {
		now.err = fmt.Errorf("the hub issued another certificate than was asked for: %w", err)
		return now
	}
	now.err = key.Forget(obtained.key)
	return now
}

// readCertificate returns how long the certificate is valid. It fails if it is not the one that is desired.
func (c *Controller) readCertificate(w *desiredSecret, secret *corev1.Secret) (secretState, error) {
	if len(secret.Data[fleet.KeyTLSCert]) == 0 {
		return secretState{}, errNoCredential
	}
	pair, err := tls.X509KeyPair(secret.Data[fleet.KeyTLSCert], secret.Data[fleet.KeyTLSKey])
	if err != nil {
		return secretState{}, fmt.Errorf("the client certificate cannot be used: %w", err)
	}
	if err := c.checkHub(w, secret); err != nil {
		return secretState{}, err
	}
	if c.isBound(w.request) && pair.Leaf.NotBefore.Before(w.notBefore) {
		return secretState{}, fmt.Errorf("the client certificate is valid from %s on, and the hub takes those from %s on, when the cluster was created or cut off",
			pair.Leaf.NotBefore.UTC().Format(time.RFC3339), w.notBefore.UTC().Format(time.RFC3339))
	}
	if err := checkSubject(w, pair.Leaf, secret.Annotations[fleet.AnnotationRequestedSubject]); err != nil {
		return secretState{}, err
	}
	return c.renewal(w, pair.Leaf.NotBefore, pair.Leaf.NotAfter), nil
}

// isBound reports whether the hub takes the certificate only if it is not older than the cluster: one for a user who acts for the cluster.
// Add-ons of others may have the same user on all clusters.
func (c *Controller) isBound(request *clientcert.AddOn) bool {
	return request.SignerName == fleet.SignerKubeAPIServerClient &&
		slices.Contains(fleet.ClustersBehind(request.Subject.CommonName, request.Subject.Organization), c.Identity.Cluster)
}

// checkSubject fails if a certificate is not for the subject that is desired. A signer of the
// add-on's own may issue another subject than was requested; there the requested subject counts.
func checkSubject(w *desiredSecret, leaf *x509.Certificate, requested string) error {
	if w.request.SignerName == fleet.SignerKubeAPIServerClient {
		if !clientcert.SameSubject(leaf.Subject, w.request.Subject) {
			return fmt.Errorf("the client certificate is of %s, not of %s", leaf.Subject, w.request.Subject)
		}
		return nil
	}
	if requested != "" && requested != text(w.request.Subject) {
		return fmt.Errorf("the client certificate was asked for as %s, not as %s", requested, text(w.request.Subject))
	}
	if leaf.Subject.CommonName != w.request.Subject.CommonName {
		return fmt.Errorf("the client certificate is of %s, not of %s", leaf.Subject, w.request.Subject)
	}
	return nil
}

// complete reports whether a Secret has what goes with its credential.
func (c *Controller) complete(w *desiredSecret, secret *corev1.Secret) bool {
	marks := c.marksOf(w)
	for name, value := range marks.Labels {
		if secret.Labels[name] != value {
			return false
		}
	}
	for name, value := range marks.Annotations {
		if secret.Annotations[name] != value {
			return false
		}
	}
	return w.kubeconfig == nil || bytes.Equal(secret.Data[fleet.KeyKubeconfig], w.kubeconfig)
}

// save puts a certificate into the Secret, with what goes with it.
func (c *Controller) save(ctx context.Context, w *desiredSecret, certificate, key []byte) error {
	if _, err := cert.ParseCertsPEM(certificate); err != nil {
		return fmt.Errorf("the hub issued a certificate that cannot be read: %w", err)
	}
	data := map[string][]byte{fleet.KeyTLSCert: certificate, fleet.KeyTLSKey: key}
	if w.kubeconfig != nil {
		data[fleet.KeyKubeconfig] = w.kubeconfig
	}
	return c.clusters[w.cluster].save(ctx, w.secret, c.marksOf(w), data, fleet.KeyToken)
}

// pendingKey is kept in the agent's own folder: a Secret with a key alone would let the add-on's pods start without a credential.
func (c *Controller) pendingKey(of id, inUse []byte) hubkubeconfig.PendingKey {
	name := fleet.LabelValue(of.cluster + "." + of.namespace + "." + of.name)
	return hubkubeconfig.PendingKey{File: filepath.Join(c.Store.Dir, ".pending."+name+".key"), InUse: func() []byte { return inUse }}
}
