package registration

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/integration/framework"
)

// The API groups of the table.
const (
	addOnAPI        = "addon.open-cluster-management.io"
	authentication  = "authentication.k8s.io"
	authenticateAPI = "authentication.open-cluster-management.io"
	authorization   = "authorization.k8s.io"
	certificates    = "certificates.k8s.io"
	clusterAPI      = "cluster.open-cluster-management.io"
	coordination    = "coordination.k8s.io"
	eventsAPI       = "events.k8s.io"
	profileAPI      = "multicluster.x-k8s.io"
	rbacAPI         = "rbac.authorization.k8s.io"
	workAPI         = "work.open-cluster-management.io"
)

// asked is a resource whose every verb is asked about. A namespaced one is asked about in the namespace of the own cluster, in
// that of another and in all; any other by the name of the own cluster, by that of another and without a name.
type asked struct {
	group, resource string
	namespaced      bool
	// verbs beyond the usual.
	verbs []string
}

var usualVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

var resources = []asked{
	{group: clusterAPI, resource: "managedclusters"},
	{group: clusterAPI, resource: "managedclusters/status"},
	{group: clusterAPI, resource: "managedclusters/finalizers"},
	{group: fleet.GroupRegister, resource: "managedclusters/accept"},
	{group: fleet.GroupRegister, resource: "managedclusters/clientcertificates", verbs: []string{fleet.VerbRenew}},
	{group: clusterAPI, resource: "managedclustersets"},
	{group: clusterAPI, resource: "managedclustersets/join"},
	{group: clusterAPI, resource: "managedclustersets/bind"},
	{group: clusterAPI, resource: "managedclustersetbindings", namespaced: true},
	{group: clusterAPI, resource: "placements", namespaced: true},
	{group: clusterAPI, resource: "placementdecisions", namespaced: true},
	{group: clusterAPI, resource: "addonplacementscores", namespaced: true},
	{group: workAPI, resource: "manifestworks", namespaced: true, verbs: []string{fleet.VerbExecuteAs}},
	{group: workAPI, resource: "manifestworks/status", namespaced: true},
	{group: workAPI, resource: "manifestworkreplicasets", namespaced: true},
	{group: addOnAPI, resource: "managedclusteraddons", namespaced: true},
	{group: addOnAPI, resource: "managedclusteraddons/status", namespaced: true},
	{group: addOnAPI, resource: "clustermanagementaddons"},
	{group: addOnAPI, resource: "addontemplates"},
	{group: addOnAPI, resource: "addondeploymentconfigs", namespaced: true},
	{group: authenticateAPI, resource: "managedserviceaccounts", namespaced: true},
	{group: profileAPI, resource: "clusterprofiles", namespaced: true},
	{group: profileAPI, resource: "placementdecisions", namespaced: true},
	{group: "apps.open-cluster-management.io", resource: "gitopsclusters", namespaced: true},
	{group: "apps.open-cluster-management.io", resource: "multiclusterapplicationsetreports", namespaced: true},
	{group: certificates, resource: "certificatesigningrequests"},
	{group: certificates, resource: "certificatesigningrequests/approval"},
	{group: certificates, resource: "certificatesigningrequests/status"},
	{group: certificates, resource: "signers", verbs: []string{"approve", "sign", "attest"}},
	{group: coordination, resource: "leases", namespaced: true},
	{resource: "namespaces"},
	{resource: "secrets", namespaced: true},
	{resource: "configmaps", namespaced: true},
	{resource: "serviceaccounts", namespaced: true, verbs: []string{"impersonate"}},
	{resource: "serviceaccounts/token", namespaced: true, verbs: []string{fleet.VerbSubscribe}},
	{resource: "users", verbs: []string{"impersonate"}},
	{resource: "groups", verbs: []string{"impersonate"}},
	{resource: "events", namespaced: true},
	{group: eventsAPI, resource: "events", namespaced: true},
	{group: rbacAPI, resource: "roles", namespaced: true, verbs: []string{"bind", "escalate"}},
	{group: rbacAPI, resource: "rolebindings", namespaced: true},
	{group: rbacAPI, resource: "clusterroles", verbs: []string{"bind", "escalate"}},
	{group: rbacAPI, resource: "clusterrolebindings"},
	{group: authentication, resource: "tokenreviews"},
	{group: authorization, resource: "subjectaccessreviews"},
	{group: "apiextensions.k8s.io", resource: "customresourcedefinitions"},
	{group: "apiregistration.k8s.io", resource: "apiservices"},
	{group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations"},
	{group: "flowcontrol.apiserver.k8s.io", resource: "flowschemas"},
}

// The rows are what an identity may, and all that it may. A widened role is a row that is missing here.
const (
	nothing = ``

	joining = `
certificatesigningrequests.certificates.k8s.io of all: create get list watch
managedclusters.cluster.open-cluster-management.io of all: create get list watch
managedclustersets/join.cluster.open-cluster-management.io of all: create
configmaps kube-public/cluster-info: get
configmaps kube-public/kube-root-ca.crt: get`

	// Contract section 10.1. The hub narrows what there is to see of the certificate requests.
	accepted = `
managedclusters.cluster.open-cluster-management.io of its own: get list update watch
managedclusters/status.cluster.open-cluster-management.io of its own: patch update
managedclusters/clientcertificates.register.open-cluster-management.io of all: renew
manifestworks.work.open-cluster-management.io of its own: get list patch update watch
manifestworks/status.work.open-cluster-management.io of its own: patch update
managedclusteraddons.addon.open-cluster-management.io of its own: get list watch
managedclusteraddons/status.addon.open-cluster-management.io of its own: patch update
certificatesigningrequests.certificates.k8s.io of all: create get list watch
leases.coordination.k8s.io of its own: get list update watch
events of its own: create patch update
events.events.k8s.io of its own: create patch update`

	// AM-40, of a cluster with an add-on that gets tokens. It may also create them, for the service account of the add-on alone.
	withTokens = accepted + `
serviceaccounts/token of its own: subscribe`

	// RG-17
	denied = `
managedclusters.cluster.open-cluster-management.io of its own: get list watch`
)

// R10: who may do what, over the authorizer of a real hub and identities that it issued.
func TestPermissions(t *testing.T) {
	t.Parallel()
	const own, other = "rights-own", "rights-other"
	admin := framework.Hub.Client(t)
	framework.Create(t, admin, framework.AcceptedCluster(own), framework.AcceptedCluster(other), framework.AcceptedCluster("rights-denied"),
		&clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rights-pending"}})
	for _, cluster := range []string{own, other, "rights-denied"} {
		framework.AwaitHubAccepted(t, admin, cluster, metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	}
	framework.MergePatch(t, admin, framework.ManagedCluster(t, "rights-denied"), `{"spec":{"hubAcceptsClient":false}}`)
	framework.AwaitHubAccepted(t, admin, "rights-denied", metav1.ConditionFalse, fleet.ReasonHubClusterAdminDenied)

	framework.Create(t, admin, framework.AcceptedCluster("rights-token"))
	framework.AwaitHubAccepted(t, admin, "rights-token", metav1.ConditionTrue, fleet.ReasonHubClusterAdminAccepted)
	registration := framework.KubeClient("rights-token", "rights")
	registration.KubeClient.Driver = addonv1beta1.KubeClientDriverToken
	tokens := framework.NewAddOn(t, "rights-token", "rights", "rights", registration)
	framework.AwaitAddOn(t, tokens, fleet.ConditionTokenInfrastructureReady, metav1.ConditionTrue, "TokenInfrastructureReady", "")

	agent := func(cluster string) authenticationv1.UserInfo {
		return framework.WhoIs(t, framework.WithCertificate(t, framework.Hub, framework.AgentSubject(cluster, "agent1"), nil))
	}
	certified := func(name string, groups ...string) authenticationv1.UserInfo {
		return framework.WhoIs(t, framework.WithCertificate(t, framework.Hub, pkix.Name{CommonName: name, Organization: groups}, nil))
	}
	config, err := framework.Hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	everything := authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
	if allowed, err := newReviewer(t, framework.WhoIs(t, config)).may(t.Context(), everything); err != nil || !allowed {
		t.Errorf("the administrator may not do everything: %v", err)
	}
	for _, test := range []struct {
		name string
		who  authenticationv1.UserInfo
		// own and another cluster, as this identity sees it.
		own, other string
		allowed    string
	}{
		{"the agent of a cluster", agent(own), own, other, accepted},
		{"the agent of another", agent(other), other, own, accepted},
		{"the agent of a cluster with tokens", agent("rights-token"), "rights-token", other, withTokens},
		{"the add-on with a token", authenticationv1.UserInfo{
			Username: fleet.AddOnTokenUser("rights-token", "rights"),
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:rights-token", "system:authenticated"},
		}, "rights-token", other, nothing},
		{"an agent through AWS", certified("arn:aws:sts::1:assumed-role/r", fleet.AWSClusterGroup(own)), own, other, accepted},
		{"the agent of a cluster nobody accepted", agent("rights-pending"), "rights-pending", other, nothing},
		{"the agent of a denied cluster", agent("rights-denied"), "rights-denied", other, denied},
		{"the agent of a cluster that does not exist", agent("rights-none"), "rights-none", other, nothing},
		{"the agent of an add-on", certified(fleet.AddOnUser(own, "proxy", "a1"), fleet.AddOnGroups(own, "proxy")...), own, other, nothing},
		{"a bootstrap token", framework.WhoIs(t, withToken(t, framework.Hub, framework.Hub.BootstrapToken(t))), own, other, joining},
		{"the bootstrap service account", framework.WhoIs(t, withToken(t, framework.Hub, bootstrapAccountToken(t, framework.Hub))), own, other, joining},
		{"a user", certified("nobody"), own, other, nothing},
		{"anonymous", authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, own, other,
			"configmaps kube-public/cluster-info: get"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := permissions(t, test.who, test.own, test.other)
			want := strings.Split(strings.TrimSpace(test.allowed), "\n")
			if test.allowed == nothing {
				want = nil
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s as %+v (-what it may do +what the hub lets it do):\n%s", test.name, test.who, diff)
			}
		})
	}
}

// permissions asks about everything and returns a row for each object with the verbs that are allowed. What is allowed on
// all objects is not told again of one.
func permissions(t *testing.T, who authenticationv1.UserInfo, own, other string) []string {
	t.Helper()
	scopes := []struct{ name, of string }{{"of all", ""}, {"of its own", own}, {"of another's", other}}
	rows := make([][]string, len(resources)+2)
	var group errgroup.Group
	group.SetLimit(4)
	reviewer := newReviewer(t, who)
	for i, r := range resources {
		group.Go(func() error {
			var everywhere []string
			for _, scope := range scopes {
				var verbs []string
				for _, verb := range append(slices.Clone(usualVerbs), r.verbs...) {
					if slices.Contains(everywhere, verb) {
						continue
					}
					allowed, err := reviewer.may(t.Context(), r.attributes(verb, scope.of))
					if err != nil {
						return err
					}
					if allowed {
						verbs = append(verbs, verb)
					}
				}
				if scope.of == "" {
					everywhere = verbs
				}
				if len(verbs) > 0 {
					rows[i] = append(rows[i], fmt.Sprintf("%s %s: %s", r.name(), scope.name, sorted(verbs)))
				}
			}
			return nil
		})
	}
	group.Go(func() (err error) {
		rows[len(resources)], err = reviewer.configMaps(t.Context())
		return err
	})
	group.Go(func() (err error) {
		rows[len(resources)+1], err = reviewer.paths(t.Context())
		return err
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(rows...)
}

func sorted(verbs []string) string { return strings.Join(slices.Sorted(slices.Values(verbs)), " ") }

func (a asked) name() string {
	if a.group == "" {
		return a.resource
	}
	return a.resource + "." + a.group
}

func (a asked) attributes(verb, cluster string) authorizationv1.ResourceAttributes {
	resource, subresource, _ := strings.Cut(a.resource, "/")
	attributes := authorizationv1.ResourceAttributes{Group: a.group, Resource: resource, Subresource: subresource, Verb: verb, Name: cluster}
	if a.namespaced {
		attributes.Namespace, attributes.Name = cluster, ""
	}
	return attributes
}

// reviewer asks the hub what a user may do.
type reviewer struct {
	client kubernetes.Interface
	who    authenticationv1.UserInfo
}

func newReviewer(t *testing.T, who authenticationv1.UserInfo) *reviewer {
	t.Helper()
	return &reviewer{client: clientOfHub(t), who: who}
}

func (r *reviewer) may(ctx context.Context, attributes authorizationv1.ResourceAttributes) (bool, error) {
	return r.review(ctx, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &attributes})
}

func (r *reviewer) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (bool, error) {
	spec.User, spec.UID, spec.Groups = r.who.Username, r.who.UID, r.who.Groups
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// paths are rows of what the hub serves next to its API.
func (r *reviewer) paths(ctx context.Context) (rows []string, err error) {
	for _, path := range []string{"/metrics", "/debug/pprof/profile", "/logs/", "/configz"} {
		allowed, err := r.review(ctx,
			authorizationv1.SubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}})
		if err != nil {
			return nil, err
		}
		if allowed {
			rows = append(rows, path+": get")
		}
	}
	return rows, nil
}

// configMaps are rows of the ConfigMaps that joining reads, and of one that it does not.
func (r *reviewer) configMaps(ctx context.Context) (rows []string, err error) {
	for _, name := range []string{"kube-public/cluster-info", "kube-public/kube-root-ca.crt",
		"kube-system/extension-apiserver-authentication"} {
		var verbs []string
		for _, verb := range usualVerbs {
			namespace, object, _ := strings.Cut(name, "/")
			allowed, err := r.may(ctx, authorizationv1.ResourceAttributes{Resource: "configmaps", Verb: verb, Namespace: namespace, Name: object})
			if err != nil {
				return nil, err
			}
			if allowed {
				verbs = append(verbs, verb)
			}
		}
		if len(verbs) > 0 {
			rows = append(rows, fmt.Sprintf("configmaps %s: %s", name, sorted(verbs)))
		}
	}
	return rows, nil
}
