package clustermanager

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	deployhub "github.com/capstan-io/capstan/deploy/hub"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/featuregates"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/patch"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// webhooks are the components that the API server of the hub calls.
type webhooks []webhook

// webhook is one of them: its program, where it listens, and how the API server reaches it.
type webhook struct {
	hub                                   planned
	name, program, image, account, secret string
	bind                                  operatorv1.BindConfiguration
	// address at which a hosted webhook is reached; empty if it is a Service of the same cluster.
	address     string
	servicePort int32
	flags       []string
}

func (p planned) webhooks() webhooks {
	all := webhooks{
		{name: registrationWebhook, program: "/registration", image: p.Spec.RegistrationImagePullSpec,
			account: fleet.ServiceAccountRegistrationWebhook, secret: fleet.SecretRegistrationServing, flags: p.registration.Flags()},
		{name: workWebhook, program: "/work", image: p.Spec.WorkImagePullSpec,
			account: fleet.ServiceAccountWorkWebhook, secret: fleet.SecretWorkServing, flags: p.work.Flags()},
		{name: addOnWebhook, program: "/addon", image: p.Spec.AddOnManagerImagePullSpec,
			account: fleet.ServiceAccountAddOnWebhook, secret: fleet.SecretAddOnServing},
	}
	for i := range all {
		all[i].hub = p
		all[i].bind, all[i].address, all[i].servicePort = p.bindingOf(all[i].name)
	}
	return all
}

// bindingOf is where a webhook listens, and where the API server reaches it.
func (p planned) bindingOf(name string) (bind operatorv1.BindConfiguration, address string, port int32) {
	port = webhookPort
	if option := p.Spec.DeployOption.Hosted; p.hosted && option != nil {
		configuration := option.RegistrationWebhookConfiguration
		if name == workWebhook {
			configuration = option.WorkWebhookConfiguration
		}
		// The configuration has no address for the add-on webhook: see reached.
		return configuration.BindConfiguration, configuration.Address, cmp.Or(configuration.Port, 443)
	}
	if option := p.Spec.DeployOption.Default; !p.hosted && option != nil {
		switch name {
		case registrationWebhook:
			bind = option.RegistrationWebhookConfiguration.BindConfiguration
		case workWebhook:
			bind = option.WorkWebhookConfiguration.BindConfiguration
		case addOnWebhook:
			bind = option.AddonWebhookConfiguration.BindConfiguration
		}
	}
	return bind, "", port
}

func (w webhook) port() int32    { return cmp.Or(w.bind.Port, webhookPort) }
func (w webhook) health() int32  { return ptr.Deref(w.bind.HealthProbePort, 8000) }
func (w webhook) metrics() int32 { return ptr.Deref(w.bind.MetricsPort, 8080) }

func (w webhook) deployment() string { return w.hub.name(w.name) }

// services are the names of its Services: that by which clients know it, and the former one while it is called there.
func (w webhook) services() []string {
	if w.hub.formerServices {
		return []string{servicePrefix + w.name, w.deployment()}
	}
	return []string{servicePrefix + w.name}
}

func (w webhook) component() workload.Component {
	component := workload.Component{
		Name: w.deployment(), App: w.deployment(), Image: w.hub.imageOf(w.image), ServiceAccount: w.account, HostNetwork: w.bind.HostNetwork,
		Args: slices.Concat([]string{w.program, "webhook-server",
			"--port=" + strconv.Itoa(int(w.port())),
			"--metrics-bind-address=" + address(w.metrics()),
			"--health-probe-bind-address=" + address(w.health())}, w.flags, w.hub.tlsFlags),
		Env:     w.env(),
		Ports:   []corev1.ContainerPort{{Name: "webhook-server", ContainerPort: w.port()}},
		Volumes: []workload.Volume{workload.SecretVolume(webhookSecretName, webhookCertDir, w.secret, false)},
	}
	if service := servicePrefix + w.name; service != w.deployment() { // which it may have been in an earlier version
		component.PodAnnotations = map[string]string{annotationService: service}
	}
	if w.metrics() > 0 {
		component.Ports = append(component.Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: w.metrics()})
	}
	if w.health() > 0 {
		get := func(path string) *corev1.HTTPGetAction {
			return &corev1.HTTPGetAction{Path: path, Scheme: corev1.URISchemeHTTP, Port: intstr.FromInt32(w.health())}
		}
		component.Liveness, component.Readiness = get("/healthz"), get("/readyz")
	} else {
		component.Unprobed = true
	}
	w.hub.mountHubKubeconfig(&component, w.account, hubKubeconfigDir)
	return component
}

// env is what a webhook has to know and images of Open Cluster Management have no flag for.
func (w webhook) env() []corev1.EnvVar {
	env := w.hub.namespaceEnv()
	if w.checksAddOns() && w.hub.work.Enabled(featuregates.NilExecutorValidating) {
		env = append(env, corev1.EnvVar{Name: fleet.EnvNilExecutorValidating, Value: "true"})
	}
	return env
}

// checksAddOns reports whether the API server may call the webhook about add-ons: see reached.
func (w webhook) checksAddOns() bool {
	return w.name == addOnWebhook || w.hub.hosted && w.name == registrationWebhook
}

// reached is the Service at which the API server of the hub reaches a webhook, with its port and the authorities that verify it. A hosted
// hub has no address for the add-on webhook; the registration webhook, which can do the same, answers there.
func (all webhooks) reached(name string) (service string, port *int32, authorities []byte) {
	if all[0].hub.hosted && name == addOnWebhook {
		name = registrationWebhook
	}
	w := all[slices.IndexFunc(all, func(w webhook) bool { return w.name == name })]
	if c := w.hub.certificates; c != nil {
		authorities = c.Trusted[w.secret]
	}
	if w.hub.formerServices {
		return w.deployment(), &w.servicePort, authorities
	}
	return servicePrefix + name, &w.servicePort, authorities
}

// configurations have the API server call the webhooks.
func (all webhooks) configurations(names deployhub.Names) []client.Object {
	configurations := deployhub.Webhooks(names)
	for _, object := range configurations {
		for _, config := range clientConfigs(object) {
			service := config.Service
			service.Name, service.Port, config.CABundle = all.reached(strings.TrimPrefix(service.Name, servicePrefix))
		}
	}
	return configurations
}

// hostedServices lead the API server of a hosted hub to the webhooks, at the addresses that users have made for these.
func (all webhooks) hostedServices() (services []client.Object) {
	for _, webhook := range all {
		if webhook.name == addOnWebhook || webhook.address == "" {
			continue
		}
		for _, name := range webhook.services() {
			services = append(services, webhook.external(name)...)
		}
	}
	return services
}

func (w webhook) external(name string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: w.hub.namespace, Name: name}
	ports := []corev1.ServicePort{{Name: "tls", Port: w.servicePort, TargetPort: intstr.FromInt32(w.servicePort), Protocol: corev1.ProtocolTCP}}
	ip := net.ParseIP(w.address)
	if ip == nil {
		return []client.Object{&corev1.Service{ObjectMeta: meta,
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: w.address, Ports: ports}}}
	}
	family := corev1.IPv4Protocol // a hub with both families would choose its first one, by which the address is not reached
	if ip.To4() == nil {
		family = corev1.IPv6Protocol
	}
	return []client.Object{
		&corev1.Service{ObjectMeta: *meta.DeepCopy(),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, IPFamilies: []corev1.IPFamily{family}, Ports: ports}},
		//nolint:staticcheck // clients look for Endpoints; Kubernetes mirrors them to EndpointSlices
		&corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: w.address}},
			Ports:     []corev1.EndpointPort{{Name: "tls", Port: w.servicePort, Protocol: corev1.ProtocolTCP}},
		}}},
	}
}

func (all webhooks) ports() (ports []networkingv1.NetworkPolicyPort) {
	for _, webhook := range all {
		ports = append(ports, tcp(webhook.port())...)
		if webhook.health() > 0 {
			ports = append(ports, tcp(webhook.health())...)
		}
	}
	return ports
}

func (all webhooks) metricsPorts() (ports []networkingv1.NetworkPolicyPort) {
	for _, webhook := range all {
		if webhook.metrics() > 0 {
			ports = append(ports, tcp(webhook.metrics())...)
		}
	}
	return ports
}

// applyWebhooks has the API server of the hub call the components, once these run. Until then it calls what it called before: only the
// authorities that it trusts are always those of now, because components that run have new certificates within a minute.
func applyWebhooks(ctx context.Context, hub *apply.Cluster, installation string, webhooks []client.Object, ready bool) error {
	if ready {
		return hub.Apply(ctx, installation, webhooks...)
	}
	for _, desired := range webhooks {
		if err := trust(ctx, hub.Client, desired); err != nil {
			return fmt.Errorf("renew the authorities that %s trusts: %w", desired.GetName(), err)
		}
	}
	return nil
}

// trust gives the webhooks that exist the authorities of those that are desired.
func trust(ctx context.Context, hub client.Client, desired client.Object) error {
	kind, err := apiutil.GVKForObject(desired, hub.Scheme())
	if err != nil {
		return err
	}
	empty, err := hub.Scheme().New(kind)
	if err != nil {
		return err
	}
	live, isObject := empty.(client.Object)
	if !isObject {
		return fmt.Errorf("%s is no object", kind)
	}
	if err := hub.Get(ctx, client.ObjectKeyFromObject(desired), live); err != nil {
		return client.IgnoreNotFound(err)
	}
	before, isObject := live.DeepCopyObject().(client.Object)
	if !isObject {
		return fmt.Errorf("%s is no object", kind)
	}
	current := clientConfigs(desired)
	for name, config := range clientConfigs(live) {
		if now, found := current[name]; found && len(now.CABundle) > 0 {
			config.CABundle = now.CABundle
		}
	}
	_, err = patch.Object(ctx, hub, live, before)
	return err
}

// clientConfigs are how the webhooks of a configuration are reached, by their names.
func clientConfigs(configuration client.Object) map[string]*admissionregistrationv1.WebhookClientConfig {
	configs := map[string]*admissionregistrationv1.WebhookClientConfig{}
	switch configuration := configuration.(type) {
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs[configuration.Webhooks[i].Name] = &configuration.Webhooks[i].ClientConfig
		}
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			configs[configuration.Webhooks[i].Name] = &configuration.Webhooks[i].ClientConfig
		}
	}
	return configs
}
