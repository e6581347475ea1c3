package resources

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// signingRequests are the CertificateSigningRequests with the label of a cluster.
type signingRequests struct{ source }

func newSigningRequests(o Options) *signingRequests {
	return &signingRequests{source{Options: o, dataType: cloudevents.SigningRequests,
		kind:      certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
		empty:     func() client.Object { return &certificatesv1.CertificateSigningRequest{} },
		list:      func() client.ObjectList { return &certificatesv1.CertificateSigningRequestList{} },
		clusterOf: func(o client.Object) string { return o.GetLabels()[fleet.LabelClusterName] },
		ofCluster: func(cluster string) []client.ListOption {
			return []client.ListOption{client.MatchingLabels{fleet.LabelClusterName: cluster}}
		},
		encode: asItIs(cloudevents.SigningRequests), version: resource.Version}}
}

// Prepare implements broker.Service.
func (s *signingRequests) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if eventType.SubResource != cloudevents.Spec || eventType.Action != cloudevents.Create {
		return nil, unsupported(eventType, "create CertificateSigningRequests")
	}
	sent := &certificatesv1.CertificateSigningRequest{}
	if err := resource.Decode(event, sent); err != nil {
		return nil, unreadable(err)
	}
	if label := sent.Labels[fleet.LabelClusterName]; label != cluster {
		return nil, forbidden(s.dataType, sent.Name, "the label %s is %q in an event for cluster %q", fleet.LabelClusterName, label, cluster)
	}
	if sent.Name == "" && sent.GenerateName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: set metadata.name or metadata.generateName, such as %q", s.dataType,
			fleet.ClusterCSRGenerateName(cluster)))
	}
	return &broker.Write{Do: func(ctx context.Context, caller *access.Caller) error { return s.create(ctx, caller, sent) }}, nil
}

// create makes the request in the name of the caller, whom the hub's controllers find in an annotation: to the API, the server is the
// requester. No other annotation is taken over, and nothing of the metadata that would make the request stay or go.
func (s *signingRequests) create(ctx context.Context, caller *access.Caller, sent *certificatesv1.CertificateSigningRequest) error {
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: sent.Name, GenerateName: sent.GenerateName, Labels: sent.Labels,
			Annotations: map[string]string{fleet.AnnotationCSRUser: caller.Username}},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: sent.Spec.Request, SignerName: sent.Spec.SignerName,
			ExpirationSeconds: sent.Spec.ExpirationSeconds, Usages: sent.Spec.Usages},
	}
	return s.Client.Create(ctx, csr)
}
