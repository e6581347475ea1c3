package brokerapi

import (
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/cloudevents"
)

// Resources that are served in a way of their own.
const (
	resourceServiceAccounts = "serviceaccounts"
	resourceEvents          = "events"
	resourceClusters        = "managedclusters"
	resourceWorks           = "manifestworks"
)

// What may be requested: a method and a subresource. PATCH stands for PUT as well.
const (
	get          = http.MethodGet + " "
	create       = http.MethodPost + " "
	update       = http.MethodPatch + " "
	updateStatus = http.MethodPatch + " status"
	createToken  = http.MethodPost + " token"
)

// kind is a kind of the hub that can be used by events.
type kind struct {
	group      schema.GroupVersion
	resource   string
	name       string
	namespaced bool
	dataType   cloudevents.DataType
	// stored says that the kind can be read.
	stored bool
	allows map[string]bool
}

func allow(what ...string) map[string]bool {
	allowed := map[string]bool{}
	for _, one := range what {
		allowed[one] = true
	}
	return allowed
}

var kinds = []kind{
	{group: clusterv1.GroupVersion, resource: resourceClusters, name: "ManagedCluster", dataType: cloudevents.ManagedClusters, stored: true,
		allows: allow(get, create, update, updateStatus)},
	{group: certificatesv1.SchemeGroupVersion, resource: "certificatesigningrequests", name: "CertificateSigningRequest",
		dataType: cloudevents.SigningRequests, stored: true, allows: allow(get, create)},
	{group: coordinationv1.SchemeGroupVersion, resource: "leases", name: "Lease", namespaced: true, dataType: cloudevents.Leases, stored: true,
		allows: allow(get, update)},
	{group: addonv1beta1.GroupVersion, resource: "managedclusteraddons", name: "ManagedClusterAddOn", namespaced: true,
		dataType: cloudevents.AddOnsOfBetaAPI, stored: true, allows: allow(get, updateStatus)},
	{group: workv1.GroupVersion, resource: resourceWorks, name: "ManifestWork", namespaced: true, dataType: cloudevents.ManifestBundles,
		stored: true, allows: allow(get, update, updateStatus)},
	{group: eventsv1.SchemeGroupVersion, resource: resourceEvents, name: "Event", namespaced: true, dataType: cloudevents.Events,
		allows: allow(create, update)},
	{group: corev1.SchemeGroupVersion, resource: resourceServiceAccounts, name: "TokenRequest", namespaced: true,
		dataType: cloudevents.TokenRequests, allows: allow(createToken)},
}

// tokenRequest is the version of what is sent to the subresource token.
var tokenRequest = authenticationv1.SchemeGroupVersion
