package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/joinrequests"
	"github.com/capstan-io/capstan/internal/cli/managedclusters"
	"github.com/capstan-io/capstan/internal/cli/output"
	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// denialReason is the reason on certificate requests that a person denied with this program.
const denialReason = "capstan Deny"

// denyCluster takes the rights of the agent of a cluster back; all of them, and those of its add-ons, if it is cut off.
func denyCluster(ctx context.Context, hub *hubapi.Hub, name string, cutOff bool) error {
	patch := `{"spec":{"hubAcceptsClient":false}}`
	if cutOff {
		patch = `{"metadata":{"labels":{"` + fleet.LabelCutOff + `":"` + fleet.LabelTrue + `"}},"spec":{"hubAcceptsClient":false}}`
	}
	err := hub.Client(managedclusters.Resource).MergePatch(ctx, name, []byte(patch))
	return hub.Explain("deny cluster "+name, err)
}

// pendingRequestsOf are the names of the certificate requests that nobody has decided on and that are for or of a cluster or its add-ons,
// whatever label they carry: by the requester, and by the identity in the certificate.
func pendingRequestsOf(ctx context.Context, hub *hubapi.Hub, cluster string) (names []string, err error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	err = hub.Client(joinrequests.Resource).List(ctx, metav1.ListOptions{}, list)
	for i := range list.Items {
		if csr := &list.Items[i]; !certrequest.IsDecided(csr) && isOfCluster(csr, cluster) {
			names = append(names, csr.Name)
		}
	}
	return names, hub.Explain("list certificate requests of cluster "+cluster, err)
}

func isOfCluster(csr *certificatesv1.CertificateSigningRequest, cluster string) bool {
	if csr.Labels[fleet.LabelClusterName] == cluster || slices.Contains(fleet.ClustersBehind(csr.Spec.Username, csr.Spec.Groups), cluster) {
		return true
	}
	parsed, err := certrequest.Parse(csr)
	return err == nil && slices.Contains(fleet.ClustersBehind(parsed.Subject.CommonName, parsed.Subject.Organization), cluster)
}

// denyRequest denies a certificate request. One that was decided on meanwhile, or is gone, stays as it is.
func denyRequest(ctx context.Context, hub *hubapi.Hub, name string) error {
	requests := hub.Client(joinrequests.Resource)
	err := hubapi.ChangeSubresource(ctx, requests, name, "approval", func(csr *certificatesv1.CertificateSigningRequest) (bool, error) {
		if certrequest.IsDecided(csr) {
			return false, nil
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue,
			Reason: denialReason, Message: "An administrator cut the cluster off with capstan.",
		})
		return true, nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return hub.Explain("deny certificate request "+output.Printable(name), err)
}

// rightsPollInterval is how often rights are read until they are gone: they are several objects, and go within a second.
const rightsPollInterval = 200 * time.Millisecond

// awaitNoRights returns once nothing on the hub gives the agent of a cluster, or its add-ons, rights. When it fails, it returns what still
// does.
func awaitNoRights(ctx context.Context, hub *hubapi.Hub, cluster string) (left []string, err error) {
	for {
		found, err := rightsOf(ctx, hub, cluster)
		if err == nil && len(found) == 0 {
			return nil, nil
		}
		if ctx.Err() != nil {
			return left, context.Cause(ctx)
		}
		if err != nil {
			return left, hub.Explain("read the rights of cluster "+cluster, err)
		}
		left = found
		select {
		case <-time.After(rightsPollInterval):
		case <-ctx.Done():
			return left, context.Cause(ctx)
		}
	}
}

var (
	clusterRoleBindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	roleBindings        = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
)

// rightsOf are the bindings by which the agent of a cluster and its add-ons have rights.
func rightsOf(ctx context.Context, hub *hubapi.Hub, cluster string) (found []string, err error) {
	global := fleet.ManagedClusterClusterRole(cluster)
	err = hub.Client(clusterRoleBindings).Get(ctx, global, nil)
	if err == nil {
		found = append(found, "ClusterRoleBinding "+global)
	}
	errs := []error{ignoreNotFound(err)}
	for _, name := range []string{fleet.RegistrationRoleBinding(cluster), fleet.WorkRoleBinding(cluster), fleet.RemainingWorksRole(cluster)} {
		err := hub.Client(roleBindings).Namespace(cluster).Get(ctx, name, nil)
		if err == nil {
			found = append(found, "RoleBinding "+cluster+"/"+name)
		}
		errs = append(errs, ignoreNotFound(err))
	}
	ofAddOns, err := rightsOfAddOns(ctx, hub, cluster)
	return append(found, ofAddOns...), errors.Join(append(errs, err)...)
}

// rightsOfAddOns are the bindings that the hub, and managers that are built with the SDK, have made for add-ons of a cluster, in whichever
// namespace. They delete them when the cluster is denied; what others have made is not known by its labels.
func rightsOfAddOns(ctx context.Context, hub *hubapi.Hub, cluster string) (found []string, err error) {
	granted := metav1.ListOptions{LabelSelector: fleet.LabelClusterName + "=" + cluster + "," + fleet.LabelAddOnManager}
	global, namespaced := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	err = errors.Join(hub.Client(clusterRoleBindings).List(ctx, granted, global), hub.Client(roleBindings).List(ctx, granted, namespaced))
	for i := range global.Items {
		found = append(found, "ClusterRoleBinding "+global.Items[i].Name)
	}
	for i := range namespaced.Items {
		found = append(found, "RoleBinding "+namespaced.Items[i].Namespace+"/"+namespaced.Items[i].Name)
	}
	return found, err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
