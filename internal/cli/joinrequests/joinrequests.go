// Package joinrequests reads the certificate requests by which agents join a hub, distinguishes them from others, approves them, and waits
// until an agent has registered.
package joinrequests

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/certrequest"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Resource is that of certificate requests.
var Resource = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// ApprovalReason is the reason on certificate requests that a person approved with this program.
const ApprovalReason = "capstan Approve"

// Request is the certificate request of an agent that wants to join with a bootstrap credential.
type Request struct {
	// Name of the CertificateSigningRequest.
	Name string
	// CommonName is who the agent will be on the hub, Requester is the user who requests it.
	CommonName, Requester string
	// Key is the public key that the certificate is to be for. Anyone may request one in the name of another's agent, but only for a key
	// of their own.
	Key string
	// Created is when.
	Created time.Time
	// Approved reports whether an administrator approved it and it can be signed; it is neither approved nor denied when Pending.
	Approved, Pending bool
	// Decided is when it was approved or denied; when it was made, if nobody has.
	Decided time.Time
}

// Refused reports whether it was denied, or could not be signed.
func (r Request) Refused() bool { return !r.Pending && !r.Approved }

// decidedBefore reports whether it was approved or denied before that time. One that nobody has decided on was not.
func (r Request) decidedBefore(limit time.Time) bool {
	return !r.Pending && r.Decided.Before(limit)
}

// EarlierThan reports whether nobody has decided on it so far and it was made before that time, by an agent of a deleted cluster.
func (r Request) EarlierThan(limit time.Time) bool {
	return r.Pending && r.Created.Before(limit)
}

// requester is an identity that agents join with: who it is, and the group that comes with it.
type requester struct {
	user  *regexp.Regexp
	group string
}

// requesters are matched whole: a user with one of them as a prefix is a different one.
var requesters = []requester{
	{user: anchored(`system:bootstrap:[a-z0-9]{6}`), group: fleet.GroupBootstrap},
	{user: anchored(regexp.QuoteMeta(fleet.ServiceAccountUser(fleet.NamespaceOperators, fleet.ServiceAccountBootstrap))),
		group: "system:serviceaccounts:" + fleet.NamespaceOperators},
}

// fromGRPCServer reports whether the gRPC server of the hub has made a request, which it does for others. It runs in the namespace of the
// hub, which is that of a hosted ClusterManager if that has the rights of a server there.
func fromGRPCServer(ctx context.Context, hub *hubapi.Hub, csr *certificatesv1.CertificateSigningRequest) bool {
	const name = fleet.ServiceAccountGRPCServer
	namespace, ok := strings.CutSuffix(csr.Spec.Username, ":"+name)
	namespace = namespace[strings.LastIndex(namespace, ":")+1:]
	if !ok || csr.Spec.Username != fleet.ServiceAccountUser(namespace, name) ||
		!slices.Contains(csr.Spec.Groups, "system:serviceaccounts:"+namespace) {
		return false
	}
	if namespace == fleet.NamespaceHub {
		return true
	}
	binding := &rbacv1.ClusterRoleBinding{}
	bindings := hub.Client(rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"))
	if err := bindings.Get(ctx, fleet.GRPCServerClusterRole(namespace), binding); err != nil {
		return false
	}
	return slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == name
	})
}

// requesterOf is who requests a certificate, directly or through the gRPC server, and whether that is an identity that agents join with.
func requesterOf(csr *certificatesv1.CertificateSigningRequest, byServer bool) (user string, joins bool) {
	// The API server has no groups for users of the gRPC server.
	if byServer {
		user = csr.Annotations[fleet.AnnotationCSRUser]
		return user, slices.ContainsFunc(requesters, func(r requester) bool { return r.user.MatchString(user) })
	}
	user = csr.Spec.Username
	return user, slices.ContainsFunc(requesters, func(r requester) bool {
		return r.user.MatchString(user) && slices.Contains(csr.Spec.Groups, r.group)
	})
}

func anchored(pattern string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + pattern + `)$`) }

// read reads a certificate request that carries the label of the cluster. The error says why it is not one that an
// agent of this cluster makes to join.
func read(csr *certificatesv1.CertificateSigningRequest, byServer bool, cluster string) (Request, error) {
	requester, joins := requesterOf(csr, byServer)
	request := Request{
		Name: csr.Name, Requester: requester, Created: csr.CreationTimestamp.Time, Pending: len(csr.Status.Conditions) == 0,
	}
	request.Decided = request.Created
	request.Approved = certrequest.Is(csr, certificatesv1.CertificateApproved) && !certrequest.Is(csr, certificatesv1.CertificateFailed)
	for _, condition := range csr.Status.Conditions {
		if condition.LastUpdateTime.After(request.Decided) {
			request.Decided = condition.LastUpdateTime.Time
		}
	}
	if csr.Labels[fleet.LabelAddOnName] != "" {
		return request, fmt.Errorf("it is for the add-on %q", csr.Labels[fleet.LabelAddOnName])
	}
	if csr.Spec.SignerName != fleet.SignerKubeAPIServerClient && csr.Spec.SignerName != fleet.SignerGRPC {
		return request, fmt.Errorf("its signer %q does not sign certificates of agents", csr.Spec.SignerName)
	}
	if !joins {
		return request, fmt.Errorf("its requester %q does not have a bootstrap credential", requester)
	}
	var err error
	request.CommonName, request.Key, err = checkSubject(csr, cluster)
	return request, err
}

// checkSubject makes sure that the certificate would be that of an agent of this cluster and no more, and returns whose it would be.
func checkSubject(csr *certificatesv1.CertificateSigningRequest, cluster string) (commonName, key string, err error) {
	parsed, err := certrequest.Parse(csr)
	if err != nil {
		return "", "", fmt.Errorf("it cannot be parsed: %w", err)
	}
	return parsed.Subject.CommonName, string(parsed.RawSubjectPublicKeyInfo), fleet.CheckAgentRequest(parsed, cluster)
}

// Rejected is a certificate request that carries the label of a cluster and is not to be approved.
type Rejected struct {
	Name string
	Err  error
}

// List lists the certificate requests that agents of the cluster made to join, and those that only look so. Those that were
// approved or denied before the time since are left out.
func List(ctx context.Context, hub *hubapi.Hub, cluster string, since time.Time) (requests []Request, rejected []Rejected,
	err error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	err = hub.Client(Resource).List(ctx, ofCluster(cluster), list)
	for i := range list.Items {
		csr := &list.Items[i]
		request, rejection := read(csr, fromGRPCServer(ctx, hub, csr), cluster)
		switch {
		case request.decidedBefore(since):
		case rejection == nil:
			requests = append(requests, request)
		case request.Pending && csr.Labels[fleet.LabelAddOnName] == "":
			rejected = append(rejected, Rejected{Name: csr.Name, Err: rejection})
		}
	}
	return requests, rejected, hub.Explain("list certificate requests of cluster "+cluster, err)
}

// Watch calls handle with each certificate request to join that the cluster has or makes, once for each version that it sees of one, until
// handle returns true. It leaves out those that were approved or denied before the time since.
func Watch(ctx context.Context, hub *hubapi.Hub, cluster string, since time.Time, handle func(Request) bool) error {
	seen := map[string]string{} // the last version, by name
	err := hubapi.Until(ctx, hub.Client(Resource), ofCluster(cluster), func(csr *certificatesv1.CertificateSigningRequest) bool {
		if seen[csr.Name] == csr.ResourceVersion {
			return false
		}
		seen[csr.Name] = csr.ResourceVersion
		request, rejection := read(csr, fromGRPCServer(ctx, hub, csr), cluster)
		return rejection == nil && !request.decidedBefore(since) && handle(request)
	})
	return hub.Explain("wait for certificate requests of cluster "+cluster, err)
}

// Names are the certificate requests that agents of the cluster have made so far.
func Names(ctx context.Context, hub *hubapi.Hub, cluster string) (map[string]bool, error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	err := hub.Client(Resource).List(ctx, ofCluster(cluster), list)
	names := map[string]bool{}
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, hub.Explain("list certificate requests of cluster "+cluster, err)
}

func ofCluster(cluster string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.Set{fleet.LabelClusterName: cluster}.String()}
}

// Approve approves a certificate request. One that was approved meanwhile stays as it is.
func Approve(ctx context.Context, hub *hubapi.Hub, name string) error {
	requests := hub.Client(Resource)
	err := hubapi.ChangeSubresource(ctx, requests, name, "approval", func(csr *certificatesv1.CertificateSigningRequest) (bool, error) {
		for _, condition := range csr.Status.Conditions {
			switch condition.Type {
			case certificatesv1.CertificateApproved:
				return false, nil
			case certificatesv1.CertificateDenied:
				return false, apierrors.NewConflict(Resource.GroupResource(), name, errors.New("it has been denied"))
			}
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
			Reason: ApprovalReason, Message: "An administrator approved it with capstan.",
		})
		return true, nil
	})
	return hub.Explain(fmt.Sprintf("approve certificate request %q", name), err)
}
