package clustermanager

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// named gives a ClusterManager a name, and other changes.
func named(name string, edits ...func(*operatorv1.ClusterManager)) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		cm.Name = name
		for _, edit := range edits {
			edit(cm)
		}
	}
}

// servicesOf are the names of the Services of webhooks among objects.
func servicesOf(objects []client.Object) string {
	names := map[string]bool{}
	for _, object := range objects {
		if _, isService := object.(*corev1.Service); isService && strings.HasSuffix(object.GetName(), "-webhook") {
			names[object.GetName()] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// calledServices are the names of the Services at which the API server of the hub reaches webhooks.
func calledServices(t *testing.T, p *plan) string {
	t.Helper()
	names := map[string]bool{}
	for _, object := range p.webhooks {
		for _, config := range clientConfigs(object) {
			names[config.Service.Name] = true
		}
	}
	for _, crd := range p.crds {
		if conversion := crd.Spec.Conversion; conversion != nil && conversion.Webhook != nil {
			names[conversion.Webhook.ClientConfig.Service.Name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// CM-04, CM-17, O4: clients find the Services of webhooks by names that do not depend on that of the ClusterManager. Former ones stay, and
// are called, until the components run that have certificates for both.
func TestServicesOfWebhooks(t *testing.T) {
	t.Parallel()
	const (
		all     = "cluster-manager-addon-webhook cluster-manager-registration-webhook cluster-manager-work-webhook"
		onHub   = "cluster-manager-registration-webhook cluster-manager-work-webhook"
		former  = "indigo-addon-webhook indigo-registration-webhook indigo-work-webhook"
		formerH = "indigo-registration-webhook indigo-work-webhook"
	)
	for name, test := range map[string]struct {
		edit                    func(*operatorv1.ClusterManager)
		former                  bool
		management, hub, called string
		hosts                   string // of the work webhook
	}{
		"default": {edit: named("cluster-manager"), management: all, called: all,
			hosts: "cluster-manager-work-webhook.open-cluster-management-hub.svc"},
		"another name": {edit: named("indigo"), management: all, called: all,
			hosts: "cluster-manager-work-webhook.open-cluster-management-hub.svc"},
		"hosted": {edit: named("indigo", hostedAt("hub.example.com")), management: all, hub: onHub, called: onHub,
			hosts: "cluster-manager-work-webhook.indigo.svc"},
		"hosted at an IP address": {edit: named("indigo", hostedAt("192.0.2.1")), management: all, hub: onHub, called: onHub,
			hosts: "cluster-manager-work-webhook.indigo.svc"},
		"from an earlier version": {edit: named("indigo"), former: true, management: all + " " + former, called: former,
			hosts: "cluster-manager-work-webhook.open-cluster-management-hub.svc indigo-work-webhook.open-cluster-management-hub.svc"},
		"hosted, from an earlier version": {edit: named("indigo", hostedAt("hub.example.com")), former: true,
			management: all + " " + former, hub: onHub + " " + formerH, called: formerH,
			hosts: "cluster-manager-work-webhook.indigo.svc indigo-work-webhook.indigo.svc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned := plannedOf(test.edit, func(in *inputs) { in.formerServices = test.former })
			p := planned.plan()
			hosts := ""
			for _, server := range planned.servers() {
				if server.Secret == fleet.SecretWorkServing {
					hosts = strings.Join(server.Hosts, " ")
				}
			}
			for _, check := range [][2]string{{servicesOf(p.base), test.management}, {servicesOf(p.hub), test.hub},
				{calledServices(t, p), test.called}, {hosts, test.hosts}} {
				if check[0] != check[1] {
					t.Errorf("got  %s\nwant %s", check[0], check[1])
				}
			}
			after := planned.withoutFormerServices(p)
			wantHub, wantCalled := onHub, onHub
			if !planned.hosted {
				wantHub, wantCalled = "", all
			}
			if servicesOf(after.base) != all || servicesOf(after.hub) != wantHub || calledServices(t, after) != wantCalled ||
				!slices.Equal(after.deployments, p.deployments) {
				t.Errorf("once they run: %s, %s, called at %s", servicesOf(after.base), servicesOf(after.hub), calledServices(t, after))
			}
		})
	}
}

// Webhooks of hubs that may have had Services of other names start anew once, with certificates for both names; those of others do not.
func TestWebhooksStartAnew(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"cluster-manager": "", "indigo": "cluster-manager-work-webhook"} {
		for _, deployment := range planOf(named(name), nil).deployments {
			if deployment.Name == name+"-work-webhook" && deployment.Spec.Template.Annotations[annotationService] != want {
				t.Errorf("the pods of %s have the annotations %v", deployment.Name, deployment.Spec.Template.Annotations)
			}
		}
	}
}

// Services that have the name of the ClusterManager are former ones if this operator has made them, and all are there.
func TestFormerServices(t *testing.T) {
	t.Parallel()
	service := func(namespace, name, by string, gone bool) client.Object {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{fleet.LabelCreatedByClusterManager: by}}}
		if gone {
			service.DeletionTimestamp, service.Finalizers = &metav1.Time{Time: metav1.Now().Time}, []string{"example.com/held"}
		}
		return service
	}
	three := func(namespace, name, by string, gone bool) (services []client.Object) {
		for _, webhook := range []string{registrationWebhook, workWebhook, addOnWebhook} {
			services = append(services, service(namespace, name+"-"+webhook, by, gone && webhook == addOnWebhook))
		}
		return services
	}
	for name, test := range map[string]struct {
		edit    func(*operatorv1.ClusterManager)
		objects []client.Object
		want    bool
	}{
		"new":                      {named("indigo"), nil, false},
		"all":                      {named("indigo"), three(fleet.NamespaceHub, "indigo", "indigo", false), true},
		"some are gone":            {named("indigo"), three(fleet.NamespaceHub, "indigo", "indigo", false)[:2], false},
		"one is going":             {named("indigo"), three(fleet.NamespaceHub, "indigo", "indigo", true), false},
		"of a user":                {named("indigo"), three(fleet.NamespaceHub, "indigo", "", false), false},
		"of another":               {named("indigo"), three(fleet.NamespaceHub, "indigo", "other", false), false},
		"names that stay":          {named("cluster-manager"), three(fleet.NamespaceHub, "cluster-manager", "cluster-manager", false), false},
		"hosted":                   {named("indigo", hostedAt("a.test")), three("indigo", "indigo", "indigo", false), true},
		"hosted, in the other one": {named("indigo", hostedAt("a.test")), three(fleet.NamespaceHub, "indigo", "indigo", false), false},
	} {
		cm := &operatorv1.ClusterManager{}
		test.edit(cm)
		c := &Controller{Operator: &frame.Operator{
			Management: &apply.Cluster{Client: fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(test.objects...).Build()}}}
		if got, err := c.formerServices(t.Context(), cm); err != nil || got != test.want {
			t.Errorf("%s: %t, %v", name, got, err)
		}
	}
}

// CM-17: clients find Deployments by a label with their names, and the pods of controllers by one that is the same in every hub.
func TestLabelsOfDeployments(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cluster-manager", "indigo"} {
		labels := func(cm *operatorv1.ClusterManager) { cm.Labels = map[string]string{"app": "mine"} }
		p := planOf(named(name, labels, withGRPC()), func(in *inputs) { in.syncLabels = true })
		want := map[string]string{
			name + "-registration-controller":  "clustermanager-registration-controller",
			name + "-placement-controller":     "clustermanager-placement-controller",
			name + "-work-controller":          "clustermanager-work-controller",
			name + "-addon-manager-controller": "clustermanager-addon-manager-controller",
			name + "-registration-webhook":     name + "-registration-webhook", name + "-work-webhook": name + "-work-webhook",
			name + "-addon-webhook": name + "-addon-webhook", name + "-grpc-server": name + "-grpc-server",
		}
		if len(p.deployments) != len(want) {
			t.Errorf("%d Deployments", len(p.deployments))
		}
		for _, d := range p.deployments {
			pods := d.Spec.Template.Labels["app"]
			if d.Labels["app"] != d.Name || pods != want[d.Name] || d.Spec.Selector.MatchLabels["app"] != pods {
				t.Errorf("%s: app %s, pods %s, selector %v", d.Name, d.Labels["app"], pods, d.Spec.Selector)
			}
		}
	}
}
