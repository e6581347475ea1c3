package kubecontrollers

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/certificates"
	certificatescontroller "k8s.io/kubernetes/pkg/controller/certificates"
	"k8s.io/kubernetes/pkg/controller/certificates/authority"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/filewatch"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// What a signed certificate is valid for, as with a stock controller manager: from a little before now unless it is short-lived,
// for clocks that are behind, and never so short that this would be most of it.
const (
	signingBackdate  = 5 * time.Minute
	shortLived       = 8 * time.Hour
	shortestLifetime = 10 * time.Minute
)

// agentLifetime is for agents of clusters and add-ons that request no lifetime of their own. Who finds a certificate can act as the
// agent for as long as it is valid, unless the cluster is cut off. Agents renew theirs when a fifth is left, so one that is away for this
// long has to join again.
const agentLifetime = 90 * 24 * time.Hour

// fits reports whether a request is one that its signer signs, by the rules that Kubernetes has for the names of signers.
var fits = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeAPIServerClientSignerName: func(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return clientUsages(usages)
	},
	certificatesv1.KubeAPIServerClientKubeletSignerName: func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return certificates.ValidateKubeletClientCSR(request, names(usages))
	},
	certificatesv1.KubeletServingSignerName: func(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
		return certificates.ValidateKubeletServingCSR(request, names(usages))
	},
}

func names(usages []certificatesv1.KeyUsage) sets.String { //nolint:staticcheck // what the rules take
	names := sets.NewString()
	for _, usage := range usages {
		names.Insert(string(usage))
	}
	return names
}

func clientUsages(usages []certificatesv1.KeyUsage) error {
	client := false
	for _, usage := range usages {
		switch usage {
		case certificatesv1.UsageClientAuth:
			client = true
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("a certificate of a client cannot have the usage %q", usage)
		}
	}
	if !client {
		return fmt.Errorf("a certificate of a client has to have the usage %q", certificatesv1.UsageClientAuth)
	}
	return nil
}

// signer signs approved requests with the CA in its files. The one of the Kubernetes project would take an inotify instance for
// each name of a signer.
type signer struct {
	client            kubernetes.Interface
	clusters          metadata.Interface // reads ManagedClusters
	certFile, keyFile string
	longest           time.Duration

	mu sync.Mutex
	ca *authority.CertificateAuthority
}

func newSigner(client kubernetes.Interface, clusters metadata.Interface, certFile, keyFile string, longest time.Duration) (*signer, error) {
	s := &signer{client: client, clusters: clusters, certFile: certFile, keyFile: keyFile, longest: longest}
	return s, s.load()
}

// follow keeps up with the files.
func (s *signer) follow(ctx context.Context) {
	changes := filewatch.New(func() []string { return []string{s.certFile, s.keyFile} })
	load := func() {
		if err := s.load(); err != nil {
			klog.FromContext(ctx).Error(err, "The CA that signs certificate requests cannot be used; the one from before stays in use")
		}
	}
	load() // what was written before the watch
	changes.Run(ctx, load)
}

// load reads the CA. Its files are replaced one after the other: a certificate and a key that do not fit are between the two.
func (s *signer) load() error {
	cert, certErr := os.ReadFile(s.certFile)
	key, keyErr := os.ReadFile(s.keyFile)
	if err := errors.Join(certErr, keyErr); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ca != nil && bytes.Equal(s.ca.RawCert, cert) && bytes.Equal(s.ca.RawKey, key) {
		return nil
	}
	chain, err := certutil.ParseCertsPEM(cert)
	if err != nil {
		return fmt.Errorf("read the CA %s: %w", s.certFile, err)
	}
	if len(chain) != 1 {
		return fmt.Errorf("the CA %s holds %d certificates, want one", s.certFile, len(chain))
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return fmt.Errorf("read the key of the CA %s: %w", s.keyFile, err)
	}
	private, ok := parsed.(crypto.Signer)
	if !ok {
		return fmt.Errorf("the key of the CA %s is a %T, which cannot sign", s.keyFile, parsed)
	}
	public, ok := private.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(chain[0].PublicKey) {
		return fmt.Errorf("the key %s is not that of the CA %s", s.keyFile, s.certFile)
	}
	s.ca = &authority.CertificateAuthority{RawCert: cert, RawKey: key, Certificate: chain[0], PrivateKey: private}
	return nil
}

func (s *signer) authority() *authority.CertificateAuthority {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ca
}

// handle signs an approved request, or says in its status why it does not. The request is the caller's own copy.
func (s *signer) handle(ctx context.Context, request *certificatesv1.CertificateSigningRequest) error {
	fits, known := fits[request.Spec.SignerName]
	if !known || !certificatescontroller.IsCertificateRequestApproved(request) ||
		certificatescontroller.HasTrueCondition(request, certificatesv1.CertificateFailed) {
		return nil
	}
	parsed, err := certificates.ParseCSR(request.Spec.Request)
	if err != nil {
		return fmt.Errorf("read the certificate request %s: %w", request.Name, err)
	}
	notBefore, err := s.notBefore(ctx, parsed)
	if err != nil {
		return err
	}
	err = fits(parsed, request.Spec.Usages)
	if err == nil {
		err = inTime(request, notBefore)
	}
	if err != nil {
		request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
			LastUpdateTime: metav1.Now(),
		})
	} else if request.Status.Certificate, err = s.sign(parsed, request.Spec, notBefore); err != nil {
		return fmt.Errorf("sign the certificate request %s: %w", request.Name, err)
	}
	_, err = s.client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, request, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status of the certificate request %s: %w", request.Name, err)
	}
	return nil
}

var managedClusters = clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters)

// notBefore is from when on the hub admits those for whom a certificate is requested; the zero time stands for always.
func (s *signer) notBefore(ctx context.Context, request *x509.CertificateRequest) (latest time.Time, err error) {
	for _, name := range fleet.ClustersBehind(request.Subject.CommonName, request.Subject.Organization) {
		cluster, err := s.clusters.Resource(managedClusters).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return latest, fmt.Errorf("find out from when on certificates of cluster %s hold: %w", name, err)
		}
		notBefore, err := fleet.CredentialsNotBefore(cluster.Annotations)
		if err != nil {
			return latest, fmt.Errorf("ManagedCluster %s: %w", name, err)
		}
		if notBefore.After(latest) {
			latest = notBefore
		}
	}
	return latest, nil
}

// inTime fails for a request that an agent made before the hub ceased to let it in: another user may have what it was made with.
func inTime(request *certificatesv1.CertificateSigningRequest, notBefore time.Time) error {
	if fleet.IsAgentIdentity(request.Spec.Username) && request.CreationTimestamp.Time.Before(notBefore) {
		return fmt.Errorf("the request is of %s, and certificates of the cluster hold from %s on (%s); ask again",
			request.CreationTimestamp.UTC().Format(time.RFC3339), notBefore.UTC().Format(time.RFC3339), fleet.AnnotationCredentialsNotBefore)
	}
	return nil
}

// sign starts the validity a little before now, and for agents not before the time from which on the hub takes their certificates: it knows
// those that are older by that.
func (s *signer) sign(request *x509.CertificateRequest, spec certificatesv1.CertificateSigningRequestSpec, notBefore time.Time) ([]byte,
	error) {
	lifetime := s.longest
	switch {
	case spec.ExpirationSeconds != nil:
		lifetime = min(s.longest, max(shortestLifetime, csr.ExpirationSecondsToDuration(*spec.ExpirationSeconds)))
	case fleet.IsAgentIdentity(request.Subject.CommonName):
		lifetime = min(s.longest, agentLifetime)
	}
	now := time.Now()
	signed, err := s.authority().Sign(request.Raw, authority.PermissiveSigningPolicy{
		TTL: lifetime, Usages: spec.Usages, Backdate: min(signingBackdate, now.Sub(notBefore)), Short: shortLived,
		Now: func() time.Time { return now },
	})
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), nil
}
