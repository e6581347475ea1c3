// Package signingrequest reads CertificateSigningRequests, and approves or denies them, for all controllers that decide on them.
// Its Authority issues the certificates.
package signingrequest

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Parse returns what is requested. It fails if that was not signed with the key that it is for.
func Parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	request, err := certrequest.Parse(csr)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return request, nil
}

// IsFor reports whether a certificate for the subject is requested: for all of it and nothing else, except the group of all
// authenticated users.
func IsFor(request *x509.CertificateRequest, subject addonv1beta1.Subject) bool {
	requested := request.Subject
	return requested.CommonName == subject.User &&
		sets.New(requested.Organization...).Delete(fleet.GroupAuthenticated).Equal(
			sets.New(subject.Groups...).Delete(fleet.GroupAuthenticated)) &&
		sets.New(requested.OrganizationalUnit...).Equal(sets.New(subject.OrganizationUnits...)) &&
		len(requested.Names) == 1+len(requested.Organization)+len(requested.OrganizationalUnit) // attributes of no other kind
}

// OfClient reports whether the usages are those of a client certificate and no others.
func OfClient(usages []certificatesv1.KeyUsage) bool {
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
		certificatesv1.UsageClientAuth}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return false
		}
	}
	return slices.Contains(usages, certificatesv1.UsageClientAuth)
}

// Decided reports whether the request is approved or denied already.
func Decided(csr *certificatesv1.CertificateSigningRequest) bool { return certrequest.IsDecided(csr) }

// Undecided reports whether the request is neither approved nor denied yet.
func Undecided(csr *certificatesv1.CertificateSigningRequest) bool { return !Decided(csr) }

// Outdated reports whether a request is from before the time from which on certificates of its cluster are accepted: its author may have
// lost the access to the hub.
func Outdated(csr *certificatesv1.CertificateSigningRequest, cluster client.Object) bool {
	notBefore, err := fleet.CredentialsNotBefore(cluster.GetAnnotations())
	return err != nil || csr.CreationTimestamp.Time.Before(notBefore)
}

// creationDelay is how much later than its request to join an agent may create its ManagedCluster. Agents of OCM create both at once, and
// the ManagedCluster again and again while a webhook of the hub is down, as in an upgrade. With their certificate, they make no other
// request by which the hub could accept the cluster.
const creationDelay = 5 * time.Minute

// admissionTime is how long admission of the hub may take: it says from when on certificates of a new cluster hold before the API server
// says when that was created.
const admissionTime = 10 * time.Second

// OutdatedToJoin is Outdated for a request to join. It is outdated when it may be for a former cluster of the name: if it is older than the
// cluster by more than creationDelay; and if the cluster was cut off since, or is restored with a time from which on its certificates hold.
func OutdatedToJoin(csr *certificatesv1.CertificateSigningRequest, cluster client.Object) bool {
	notBefore, err := fleet.CredentialsNotBefore(cluster.GetAnnotations())
	created := cluster.GetCreationTimestamp().Time
	sinceCreation := !notBefore.After(created) && created.Sub(notBefore) <= admissionTime
	return err != nil || csr.CreationTimestamp.Time.Before(created.Add(-creationDelay)) ||
		!sinceCreation && csr.CreationTimestamp.Time.Before(notBefore)
}

// OutdatedMessage is the message of a denial of an outdated request.
func OutdatedMessage(cluster client.Object) string {
	return fmt.Sprintf("it is older than the certificates that hold for ManagedCluster %s, which is of %s, and whose annotation %s is %q",
		cluster.GetName(), cluster.GetCreationTimestamp().UTC().Format(time.RFC3339), fleet.AnnotationCredentialsNotBefore,
		cluster.GetAnnotations()[fleet.AnnotationCredentialsNotBefore])
}

// Indexes of requests: the ManagedCluster and the ManagedClusterAddOn that they are labelled to be of.
const (
	IndexCluster = "certrequest.cluster"
	indexAddOn   = "certrequest.addon"
)

// AddClusterIndex adds the index that OfCluster selects by. Of all requests of a fleet, few are of one cluster.
func AddClusterIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return addIndex(ctx, indexer, IndexCluster, ClusterOf)
}

// AddAddOnIndex adds the index that OfAddOn reads through.
func AddAddOnIndex(ctx context.Context, indexer client.FieldIndexer) error {
	return addIndex(ctx, indexer, indexAddOn, addOnOf)
}

func addIndex(ctx context.Context, indexer client.FieldIndexer, name string, of client.IndexerFunc) error {
	if err := indexer.IndexField(ctx, &certificatesv1.CertificateSigningRequest{}, name, of); err != nil {
		return fmt.Errorf("index CertificateSigningRequests by %s: %w", name, err)
	}
	return nil
}

// ClusterOf are the values of IndexCluster.
func ClusterOf(csr client.Object) []string {
	if cluster := csr.GetLabels()[fleet.LabelClusterName]; cluster != "" {
		return []string{cluster}
	}
	return nil
}

func addOnOf(csr client.Object) []string {
	cluster, addOn := csr.GetLabels()[fleet.LabelClusterName], csr.GetLabels()[fleet.LabelAddOnName]
	if cluster == "" || addOn == "" {
		return nil
	}
	return []string{client.ObjectKey{Namespace: cluster, Name: addOn}.String()}
}

// OfCluster selects the requests that are labelled to be of a ManagedCluster. The reader needs the index of AddClusterIndex.
func OfCluster(cluster string) client.ListOption { return client.MatchingFields{IndexCluster: cluster} }

// OfAddOn returns what finds those requests of a ManagedClusterAddOn that are to be reconciled with it. The reader needs the index of
// AddAddOnIndex.
func OfAddOn(c client.Reader, which func(*certificatesv1.CertificateSigningRequest) bool) handler.MapFunc {
	return func(ctx context.Context, addOn client.Object) []reconcile.Request {
		key := client.ObjectKeyFromObject(addOn)
		found, err := List(ctx, c, which, client.MatchingFields{indexAddOn: key.String()})
		if err != nil {
			log.FromContext(ctx).Error(err, "The certificate requests of an add-on cannot be looked at again", "addOn", key)
		}
		return found
	}
}

// List returns those requests that the options select and that which matches.
func List(
	ctx context.Context, c client.Reader, which func(*certificatesv1.CertificateSigningRequest) bool, options ...client.ListOption,
) (found []reconcile.Request, err error) {
	csrs := &certificatesv1.CertificateSigningRequestList{}
	if err := c.List(ctx, csrs, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("list CertificateSigningRequests: %w", err)
	}
	for i := range csrs.Items {
		if which(&csrs.Items[i]) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&csrs.Items[i])})
		}
	}
	return found, nil
}

// AddOnChanged matches ManagedClusterAddOns whose requests may be decided differently now: their registrations or configurations have
// changed.
func AddOnChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*addonv1beta1.ManagedClusterAddOn)
		after, too := e.ObjectNew.(*addonv1beta1.ManagedClusterAddOn)
		return !ok || !too || !equality.Semantic.DeepEqual(before.Status.Registrations, after.Status.Registrations) ||
			!slices.EqualFunc(before.Status.ConfigReferences, after.Status.ConfigReferences, sameDesired)
	}}
}

// sameDesired leaves out how far the configuration has come: that changes for every add-on with each rollout.
func sameDesired(a, b addonv1beta1.ConfigReference) bool {
	return a.ConfigGroupResource == b.ConfigGroupResource && equality.Semantic.DeepEqual(a.DesiredConfig, b.DesiredConfig)
}

// Refused reports whether the request gets no certificate any more: it is denied, or cannot be signed.
func Refused(csr *certificatesv1.CertificateSigningRequest) bool {
	return certrequest.Is(csr, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)
}

// ToBeSigned reports whether the request is approved and has no certificate yet. One that is not refused is decided on by its approval.
func ToBeSigned(csr *certificatesv1.CertificateSigningRequest) bool {
	return Decided(csr) && !Refused(csr) && len(csr.Status.Certificate) == 0
}

// ApprovedByHub reports whether the hub approved the request by itself.
func ApprovedByHub(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved && c.Reason == fleet.CSRApprovalReason
	})
}

// Approve approves the request in the name of the hub; the message says why.
func Approve(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) error {
	at := metav1.NewTime(now)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: fleet.CSRApprovalReason,
		Message: message, LastUpdateTime: at, LastTransitionTime: at,
	})
	if err := c.SubResource("approval").Update(ctx, csr); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %s: %w", csr.Name, err)
	}
	return nil
}
