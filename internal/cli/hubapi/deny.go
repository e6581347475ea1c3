package hubapi

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// DenialReason is the reason on certificate requests that a person denied with this program.
const DenialReason = "capstan Deny"

// DenyCluster takes the rights of the agent of a cluster back; all of them, and those of its add-ons, if it is cut off.
func (h *Hub) DenyCluster(ctx context.Context, name string, cutOff bool) error {
	patch := `{"spec":{"hubAcceptsClient":false}}`
	if cutOff {
		patch = `{"metadata":{"labels":{"` + fleet.LabelCutOff + `":"` + fleet.LabelTrue + `"}},"spec":{"hubAcceptsClient":false}}`
	}
	err := h.Client(clusterv1.GroupVersion.WithResource(fleet.ResourceManagedClusters)).MergePatch(ctx, name, []byte(patch))
	return h.Explain("deny cluster "+name, err)
}

// PendingRequestsOf are the names of the certificate requests that nobody has decided on and that are for or of a cluster or its add-ons,
// whatever label they carry: by who asks, and by whom the certificate would name.
func (h *Hub) PendingRequestsOf(ctx context.Context, cluster string) (names []string, err error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	err = h.Client(certificateSigningRequests).List(ctx, metav1.ListOptions{}, list)
	for i := range list.Items {
		if csr := &list.Items[i]; isPending(csr) && isOfCluster(csr, cluster) {
			names = append(names, csr.Name)
		}
	}
	return names, h.Explain("list certificate requests of cluster "+cluster, err)
}

func isPending(csr *certificatesv1.CertificateSigningRequest) bool {
	return !slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied
	})
}

func isOfCluster(csr *certificatesv1.CertificateSigningRequest, cluster string) bool {
	if csr.Labels[fleet.LabelClusterName] == cluster || slices.Contains(fleet.ClustersBehind(csr.Spec.Username, csr.Spec.Groups), cluster) {
		return true
	}
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return false
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	return err == nil && slices.Contains(fleet.ClustersBehind(parsed.Subject.CommonName, parsed.Subject.Organization), cluster)
}

// DenyRequest denies a certificate request. One that was decided on meanwhile, or is gone, stays as it is.
func (h *Hub) DenyRequest(ctx context.Context, name string) error {
	requests := h.Client(certificateSigningRequests)
	err := ChangeSubresource(ctx, requests, name, "approval", func(csr *certificatesv1.CertificateSigningRequest) (bool, error) {
		if !isPending(csr) {
			return false, nil
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue,
			Reason: DenialReason, Message: "An administrator cut the cluster off with capstan.",
		})
		return true, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return h.Explain("deny certificate request "+name, err)
}

// rightsPoll is how often it is looked whether rights are gone: they are several objects, and go within a second.
const rightsPoll = 200 * time.Millisecond

// AwaitNoRights returns once nothing on the hub gives the agent of a cluster rights. When it fails, it returns what still does.
func (h *Hub) AwaitNoRights(ctx context.Context, cluster string) (left []string, err error) {
	for {
		found, err := h.rightsOf(ctx, cluster)
		if err == nil && len(found) == 0 {
			return nil, nil
		}
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
		if err != nil {
			return left, h.Explain("read the rights of cluster "+cluster, err)
		}
		left = found
		select {
		case <-time.After(rightsPoll):
		case <-ctx.Done():
			return left, context.Cause(ctx)
		}
	}
}

// rightsOf are the bindings by which the agent of a cluster has rights.
func (h *Hub) rightsOf(ctx context.Context, cluster string) (found []string, err error) {
	global := fleet.ManagedClusterClusterRole(cluster)
	err = h.Client(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")).Get(ctx, global, nil)
	if err == nil {
		found = append(found, "ClusterRoleBinding "+global)
	}
	errs := []error{ignoreNotFound(err)}
	for _, name := range []string{fleet.RegistrationRoleBinding(cluster), fleet.WorkRoleBinding(cluster), fleet.RemainingWorksRole(cluster)} {
		err := h.Client(rbacv1.SchemeGroupVersion.WithResource("rolebindings")).Namespace(cluster).Get(ctx, name, nil)
		if err == nil {
			found = append(found, "RoleBinding "+cluster+"/"+name)
		}
		errs = append(errs, ignoreNotFound(err))
	}
	return found, errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
