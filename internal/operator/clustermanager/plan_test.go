package clustermanager

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
	"github.com/capstan-io/capstan/internal/operator/servingcerts"
)

// planOf is the plan for a ClusterManager of that name with images that have the names of the original.
func planOf(edit func(*operatorv1.ClusterManager), inputs func(*inputs)) *plan {
	return plannedOf(edit, inputs).plan()
}

func plannedOf(edit func(*operatorv1.ClusterManager), inputs func(*inputs)) planned {
	cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
	cm.Spec.RegistrationImagePullSpec = "example.com/registration:v1"
	cm.Spec.WorkImagePullSpec = "example.com/work:v1"
	cm.Spec.PlacementImagePullSpec = "quay.io/open-cluster-management/placement"
	cm.Spec.AddOnManagerImagePullSpec = "quay.io/open-cluster-management/addon-manager:v1.3.1"
	if edit != nil {
		edit(cm)
	}
	in := testInputs(cm)
	if inputs != nil {
		inputs(&in)
	}
	return newPlanned(cm, in)
}

func testInputs(cm *operatorv1.ClusterManager) inputs {
	return inputs{namespace: namespaceOf(cm), replicas: 3, image: "example.com/capstan-hub:v1"}
}

func deployment(t *testing.T, p *plan, name string) *appsv1.Deployment {
	t.Helper()
	at := slices.IndexFunc(p.deployments, func(d *appsv1.Deployment) bool { return d.Name == "cluster-manager-"+name })
	if at < 0 {
		t.Fatalf("there is no Deployment %s", name)
	}
	return p.deployments[at]
}

func argsOf(t *testing.T, p *plan, name string) string {
	t.Helper()
	return strings.Join(deployment(t, p, name).Spec.Template.Spec.Containers[0].Args, " ")
}

func find[T client.Object](p *plan, name string) (found T, ok bool) {
	for _, object := range p.all() {
		if typed, is := object.(T); is && object.GetName() == name {
			return typed, true
		}
	}
	return found, false
}

// The command lines are those of Open Cluster Management, with what differs from its defaults. CM-09, CM-10, CM-14, CM-17, CM-31
func TestArguments(t *testing.T) {
	t.Parallel()
	approval := func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{AutoApproveUsers: []string{"old"},
			FeatureGates: []operatorv1.FeatureGate{{Feature: "ManagedClusterAutoApproval", Mode: "Enable"}}}
	}
	for name, test := range map[string]struct {
		edit   func(*operatorv1.ClusterManager)
		inputs func(*inputs)
		of     string
		want   string
	}{
		"registration": {of: "registration-controller", want: "/registration controller"},
		"work": {of: "work-controller",
			want: "/work manager --feature-gates=CleanUpCompletedManifestWork=true,ManifestWorkReplicaSet=true"},
		"placement": {of: "placement-controller", want: "/placement controller --feature-gates=PlacementDebugServer=true"},
		"add-ons":   {of: "addon-manager-controller", want: "/addon manager"},
		"webhook": {of: "registration-webhook",
			want: "/registration webhook-server --port=9443 --metrics-bind-address=:8080 --health-probe-bind-address=:8000"},
		"work webhook": {of: "work-webhook",
			want: "/work webhook-server --port=9443 --metrics-bind-address=:8080 --health-probe-bind-address=:8000 " +
				"--feature-gates=CleanUpCompletedManifestWork=true,ManifestWorkReplicaSet=true"},
		"one replica": {inputs: func(in *inputs) { in.replicas = 1 }, of: "registration-controller",
			want: "/registration controller --disable-leader-election"},
		"users to approve": {edit: approval, of: "registration-controller",
			want: "/registration controller --feature-gates=ManagedClusterAutoApproval=true --auto-approved-csr-users=old"},
		"users of the driver": {edit: func(cm *operatorv1.ClusterManager) {
			approval(cm)
			cm.Spec.RegistrationConfiguration.RegistrationDrivers = []operatorv1.RegistrationDriverHub{
				{AuthType: "csr", CSR: &operatorv1.CSRConfig{AutoApprovedIdentities: []string{"a", "b"}}}}
		}, of: "registration-controller",
			want: "/registration controller --feature-gates=ManagedClusterAutoApproval=true --auto-approved-csr-users=a,b"},
		"users of a directory": {edit: func(cm *operatorv1.ClusterManager) {
			approval(cm)
			cm.Spec.RegistrationConfiguration.AutoApproveUsers = []string{"CN=a,OU=fleet", `b "c"`}
		}, of: "registration-controller", want: "/registration controller --feature-gates=ManagedClusterAutoApproval=true " +
			`--auto-approved-csr-users="CN=a,OU=fleet","b ""c"""`},
		"users without the gate": {edit: func(cm *operatorv1.ClusterManager) {
			cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{AutoApproveUsers: []string{"old"}}
		}, of: "registration-controller", want: "/registration controller"},
		"imports": {edit: imports("render-auto", "render-from-config-secret"),
			inputs: func(in *inputs) { in.agentImage = "example.com/agent:v1" }, of: "registration-controller",
			want: "/registration controller --feature-gates=ClusterImporter=true " +
				"--cluster-import-renderers=render-auto,render-from-config-secret --cluster-import-agent-image=example.com/agent:v1"},
		"imports by default": {edit: imports(), of: "registration-controller",
			want: "/registration controller --feature-gates=ClusterImporter=true"},
		"imports by what is not there": {edit: imports("render-more"), of: "registration-controller",
			want: "/registration controller --feature-gates=ClusterImporter=true"},
		"imports without the gate": {edit: func(cm *operatorv1.ClusterManager) {
			imports("render-auto")(cm)
			cm.Spec.RegistrationConfiguration.FeatureGates = nil
		}, inputs: func(in *inputs) { in.agentImage = "example.com/agent:v1" }, of: "registration-controller",
			want: "/registration controller"},
		"TLS": {inputs: func(in *inputs) { in.tlsFlags = []string{"--tls-min-version=VersionTLS13"} }, of: "addon-webhook",
			want: "/addon webhook-server --port=9443 --metrics-bind-address=:8080 --health-probe-bind-address=:8000 --tls-min-version=VersionTLS13"},
		"labels": {edit: func(cm *operatorv1.ClusterManager) {
			cm.Labels = map[string]string{"team": "a", "app": "b", "open-cluster-management.io/c": "d"}
		}, inputs: func(in *inputs) { in.syncLabels = true }, of: "registration-controller", want: "/registration controller --labels=team=a"},
		"hosted": {edit: hostedAt("hub.example.com"), of: "placement-controller",
			want: "/placement controller --feature-gates=PlacementDebugServer=true --kubeconfig=/var/run/secrets/hub/kubeconfig"},
		"explanations": {edit: explaining, of: "placement-controller", want: "/placement controller --feature-gates=PlacementDebugServer=true " +
			"--placement-debug-bind-address=:9443 --placement-debug-cert-dir=/var/run/secrets/placement-debug"},
		"explanations without a certificate": {edit: explaining, inputs: func(in *inputs) { in.unexplained = true }, of: "placement-controller",
			want: "/placement controller --feature-gates=PlacementDebugServer=true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := argsOf(t, planOf(test.edit, test.inputs), test.of); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// explaining has placements explained.
func explaining(cm *operatorv1.ClusterManager) {
	cm.Spec.PlacementConfiguration = &operatorv1.PlacementConfiguration{
		FeatureGates: []operatorv1.FeatureGate{{Feature: "PlacementDebugServer", Mode: "Enable"}}}
}

// CM-31: what may not be secured is not served under a name either.
func TestUnexplained(t *testing.T) {
	t.Parallel()
	for unexplained, want := range map[bool]bool{false: true, true: false} {
		p := plannedOf(explaining, func(in *inputs) { in.unexplained = unexplained })
		_, served := find[*corev1.Service](p.plan(), "cluster-manager-placement")
		secured := slices.ContainsFunc(p.servers(), func(server servingcerts.Server) bool {
			return server.Secret == fleet.SecretPlacementDebugServing
		})
		if served != want || secured != want {
			t.Errorf("unexplained is %t: there is a Service: %t, a certificate: %t", unexplained, served, secured)
		}
	}
}

// imports has clusters imported with what the renderers make.
func imports(renderers ...string) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{
			FeatureGates:          []operatorv1.FeatureGate{{Feature: "ClusterImporter", Mode: "Enable"}},
			ImporterConfiguration: &operatorv1.ImporterConfiguration{Renderers: renderers}}
	}
}

func hostedAt(address string) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		cm.Spec.DeployOption = operatorv1.ClusterManagerDeployOption{Mode: operatorv1.InstallModeHosted,
			Hosted: &operatorv1.HostedClusterManagerConfiguration{
				RegistrationWebhookConfiguration: operatorv1.HostedWebhookConfiguration{Address: address},
				WorkWebhookConfiguration:         operatorv1.HostedWebhookConfiguration{Address: address, Port: 31443}}}
	}
}

// CM-06: images that nobody has chosen are that of the operator.
func TestImages(t *testing.T) {
	t.Parallel()
	p := planOf(nil, nil)
	for of, want := range map[string]string{
		"registration-controller": "example.com/registration:v1", "work-webhook": "example.com/work:v1",
		"placement-controller":     "example.com/capstan-hub:v1",
		"addon-manager-controller": "quay.io/open-cluster-management/addon-manager:v1.3.1",
	} {
		if got := deployment(t, p, of).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s runs %s, want %s", of, got, want)
		}
	}
}

// CM-07, CM-08, CM-17: what users configure for all pods, and how all pods are secured.
func TestPods(t *testing.T) {
	t.Parallel()
	limits := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	p := planOf(func(cm *operatorv1.ClusterManager) {
		cm.Spec.NodePlacement = operatorv1.NodePlacement{NodeSelector: map[string]string{"a": "b"},
			Tolerations: []corev1.Toleration{{Key: "c", Operator: corev1.TolerationOpExists}}}
		cm.Spec.ResourceRequirement = &operatorv1.ResourceRequirement{Type: operatorv1.ResourceQosClassResourceRequirement,
			ResourceRequirements: &limits}
	}, nil)
	if len(p.deployments) != 7 {
		t.Fatalf("%d Deployments", len(p.deployments))
	}
	for _, d := range p.deployments {
		pod := d.Spec.Template.Spec
		container := pod.Containers[0]
		if pod.NodeSelector["a"] != "b" || len(pod.Tolerations) != 1 || container.Resources.Limits.Memory().String() != "64Mi" ||
			*d.Spec.Replicas != 3 {
			t.Errorf("%s: %v %v %v", d.Name, pod.NodeSelector, pod.Tolerations, container.Resources)
		}
		security := container.SecurityContext
		if !*pod.SecurityContext.RunAsNonRoot || !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation ||
			!slices.Contains(security.Capabilities.Drop, "ALL") {
			t.Errorf("%s: %v", d.Name, security)
		}
		if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/tmp" && !m.ReadOnly }) {
			t.Errorf("%s cannot write to /tmp", d.Name)
		}
		if container.StartupProbe == nil || container.LivenessProbe == nil ||
			!reflect.DeepEqual(container.StartupProbe.ProbeHandler, container.LivenessProbe.ProbeHandler) {
			t.Errorf("%s may be killed while it starts: %v", d.Name, container.StartupProbe)
		}
		if _, budgeted := find[*policyv1.PodDisruptionBudget](p, d.Name); !budgeted {
			t.Errorf("%s has no disruption budget", d.Name)
		}
	}
	probe := deployment(t, p, "registration-controller").Spec.Template.Spec.Containers[0].LivenessProbe
	if probe.HTTPGet.Port.IntValue() != 8443 || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS || probe.HTTPGet.Path != "/healthz" ||
		probe.InitialDelaySeconds != 0 || probe.PeriodSeconds != 10 {
		t.Errorf("probe %v", probe)
	}
}

// CM-05
func TestWebhookBinding(t *testing.T) {
	t.Parallel()
	p := planOf(func(cm *operatorv1.ClusterManager) {
		cm.Spec.DeployOption.Default = &operatorv1.DefaultClusterManagerConfiguration{
			RegistrationWebhookConfiguration: operatorv1.DefaultWebhookConfiguration{BindConfiguration: operatorv1.BindConfiguration{
				Port: 10443, HealthProbePort: ptr.To(int32(0)), MetricsPort: ptr.To(int32(-1)), HostNetwork: true}}}
	}, func(in *inputs) { in.replicas = 4 })
	d := deployment(t, p, "registration-webhook")
	if got := argsOf(t, p, "registration-webhook"); !strings.Contains(got,
		"--port=10443 --metrics-bind-address=0 --health-probe-bind-address=0") {
		t.Errorf("arguments %s", got)
	}
	pod := d.Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet || pod.Containers[0].LivenessProbe != nil ||
		d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 0 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.String() != "25%" {
		t.Errorf("%v %v", pod, d.Spec.Strategy)
	}
	service, _ := find[*corev1.Service](p, "cluster-manager-registration-webhook")
	if port := service.Spec.Ports[0]; port.Port != 9443 || port.TargetPort.IntValue() != 10443 {
		t.Errorf("the Service has %v", port)
	}
	if other := deployment(t, p, "work-webhook").Spec.Template.Spec; other.HostNetwork ||
		other.Containers[0].LivenessProbe.HTTPGet.Port.IntValue() != 8000 {
		t.Errorf("the other webhook changed, too: %v", other)
	}
}

// CM-04: all webhooks of a hosted hub are reached at Services that it has there.
func TestHostedWebhooks(t *testing.T) {
	t.Parallel()
	p := planOf(hostedAt("hub.example.com"), nil)
	for _, object := range p.webhooks {
		configuration, ok := object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
		if !ok {
			continue
		}
		for _, webhook := range configuration.Webhooks {
			service := webhook.ClientConfig.Service
			if !slices.ContainsFunc(p.hub, func(o client.Object) bool {
				_, isService := o.(*corev1.Service)
				return isService && o.GetName() == service.Name && o.GetNamespace() == service.Namespace
			}) {
				t.Errorf("%s is reached at %s, which is no Service on the hub", webhook.Name, service.Name)
			}
		}
	}
}

// CM-04: webhooks know the accounts of a hosted hub by its namespace.
func TestWebhooksKnowTheNamespace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*operatorv1.ClusterManager)
		want string
	}{"default": {nil, ""}, "hosted": {hostedAt("hub.example.com"), "cluster-manager"}} {
		p := planOf(test.edit, nil)
		for _, webhook := range []string{registrationWebhook, workWebhook, addOnWebhook} {
			if got := environment(deployment(t, p, webhook))[fleet.EnvHubNamespace]; got != test.want {
				t.Errorf("%s: %s has the namespace %q, want %q", name, webhook, got, test.want)
			}
		}
	}
}

// CM-14: the gate of works about executors also holds for AddOnTemplates, of which works are made.
func TestExecutorsOfAddOnTemplates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   operatorv1.FeatureGateModeType
		hosted bool
		want   []string
	}{
		"default":     {mode: operatorv1.FeatureGateModeTypeEnable, want: []string{addOnWebhook}},
		"hosted":      {mode: operatorv1.FeatureGateModeTypeEnable, hosted: true, want: []string{registrationWebhook, addOnWebhook}},
		"off":         {mode: operatorv1.FeatureGateModeTypeDisable},
		"off, hosted": {mode: operatorv1.FeatureGateModeTypeDisable, hosted: true},
	} {
		p := planOf(func(cm *operatorv1.ClusterManager) {
			cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{
				FeatureGates: []operatorv1.FeatureGate{{Feature: "NilExecutorValidating", Mode: test.mode}}}
			if test.hosted {
				hostedAt("hub.example.com")(cm)
			}
		}, nil)
		for _, webhook := range []string{registrationWebhook, addOnWebhook} {
			want := ""
			if slices.Contains(test.want, webhook) {
				want = "true"
			}
			if got := environment(deployment(t, p, webhook))[fleet.EnvNilExecutorValidating]; got != want {
				t.Errorf("%s: %s has the gate %q, want %q", name, webhook, got, want)
			}
		}
	}
}

// environment is that of the container of a Deployment.
func environment(d *appsv1.Deployment) map[string]string {
	values := map[string]string{}
	for _, variable := range d.Spec.Template.Spec.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}

// CM-04, O4: the Service of a hosted webhook has the family of the address that it leads to, whichever is the first of the hub.
func TestHostedAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]struct {
		kind   corev1.ServiceType
		family corev1.IPFamily
	}{
		"hub.example.com": {kind: corev1.ServiceTypeExternalName},
		"192.0.2.1":       {corev1.ServiceTypeClusterIP, corev1.IPv4Protocol},
		"2001:db8::1":     {corev1.ServiceTypeClusterIP, corev1.IPv6Protocol},
	} {
		services := 0
		for _, object := range planOf(hostedAt(address), nil).hub {
			switch object := object.(type) {
			case *corev1.Service:
				services++
				if object.Spec.Type != want.kind || strings.Join(familiesOf(object), " ") != string(want.family) {
					t.Errorf("%s: %s has the type %s and the families %v", address, object.Name, object.Spec.Type, object.Spec.IPFamilies)
				}
			case *corev1.Endpoints: //nolint:staticcheck // clients look for them
				if object.Subsets[0].Addresses[0].IP != address {
					t.Errorf("%s: %s leads to %v", address, object.Name, object.Subsets)
				}
			}
		}
		if services != 2 {
			t.Errorf("%s: %d Services", address, services)
		}
	}
}

func familiesOf(service *corev1.Service) (families []string) {
	for _, family := range service.Spec.IPFamilies {
		families = append(families, string(family))
	}
	return families
}

// CM-03, CM-04: conversions of a hosted hub are served, although it has no address for the add-on webhook.
func TestHostedConversions(t *testing.T) {
	t.Parallel()
	p := planOf(hostedAt("hub.example.com"), nil)
	for _, crd := range p.crds {
		if crd.Spec.Conversion == nil || crd.Spec.Conversion.Webhook == nil {
			continue
		}
		if service := crd.Spec.Conversion.Webhook.ClientConfig.Service; service.Name != "cluster-manager-registration-webhook" ||
			service.Namespace != "cluster-manager" || *service.Port != 443 {
			t.Errorf("%s is converted by %v", crd.Name, service)
		}
	}
	for _, object := range p.onManagement() {
		if _, isNamespace := object.(*corev1.Namespace); isNamespace {
			t.Error("the namespace is the user's, who has stored the kubeconfig in it")
		}
	}
}

// CM-29: pods reach every port by UDP, for DNS, and by TCP: networks apply policies behind Services, where the port is another one.
func TestNetworkPolicies(t *testing.T) {
	t.Parallel()
	p := planOf(nil, nil)
	egress, found := find[*networkingv1.NetworkPolicy](p, "allow-egress")
	if !found {
		t.Fatal("there are no policies")
	}
	var ports []string
	for _, port := range egress.Spec.Egress[0].Ports {
		number := "any"
		if port.Port != nil {
			number = port.Port.String()
		}
		ports = append(ports, string(*port.Protocol)+":"+number)
	}
	if !slices.Equal(ports, []string{"UDP:any", "TCP:any"}) {
		t.Errorf("pods reach %v", ports)
	}
	for _, name := range []string{"default-deny-all", "allow-intra-namespace", "allow-hub-ingress", "allow-prometheus-ingress"} {
		if _, found := find[*networkingv1.NetworkPolicy](p, name); !found {
			t.Errorf("there is no policy %s", name)
		}
	}
}

// CM-14, CM-17: what is switched off has no service account, no permissions and no credential, whatever else is on.
func TestRightsFollowGates(t *testing.T) {
	t.Parallel()
	gate := func(name string, mode operatorv1.FeatureGateModeType) []operatorv1.FeatureGate {
		return []operatorv1.FeatureGate{{Feature: name, Mode: mode}}
	}
	withoutAddOns := func(cm *operatorv1.ClusterManager) {
		cm.Spec.AddOnManagerConfiguration = &operatorv1.AddOnManagerConfiguration{FeatureGates: gate("AddonManagement", "Disable")}
	}
	withoutSets := func(cm *operatorv1.ClusterManager) {
		cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{FeatureGates: gate("ManifestWorkReplicaSet", "Disable")}
	}
	withoutWorks := func(cm *operatorv1.ClusterManager) {
		withoutSets(cm)
		works := cm.Spec.WorkConfiguration
		works.FeatureGates = append(works.FeatureGates, gate("CleanUpCompletedManifestWork", "Disable")...)
	}
	withProfiles := func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{FeatureGates: gate("ClusterProfile", "Enable")}
	}
	withApplications := func(cm *operatorv1.ClusterManager) {
		cm.Spec.AddOnManagerConfiguration = &operatorv1.AddOnManagerConfiguration{FeatureGates: gate("GitOpsCluster", "Enable")}
	}
	withImports := func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{FeatureGates: gate("ClusterImporter", "Enable")}
	}
	const work, addOns, profiles = "work:controller", "addon-manager:controller", "clusterprofile:controller"
	withDecisions := func(cm *operatorv1.ClusterManager) {
		cm.Spec.PlacementConfiguration = &operatorv1.PlacementConfiguration{FeatureGates: gate("SIGPlacementDecision", "Enable")}
	}
	const applications, decisions, imports = "applications:controller", "sigplacementdecision:controller", "clusterimporter:controller"
	accounts := map[string]string{work: "work-controller-sa", addOns: "addon-manager-controller-sa"}
	for name, test := range map[string]struct {
		edits []func(*operatorv1.ClusterManager)
		want  []string
	}{
		"by default":            {want: []string{addOns, work}},
		"without add-ons":       {edits: []func(*operatorv1.ClusterManager){withoutAddOns}, want: []string{work}},
		"works with one of two": {edits: []func(*operatorv1.ClusterManager){withoutSets}, want: []string{addOns, work}},
		"without works":         {edits: []func(*operatorv1.ClusterManager){withoutWorks}, want: []string{addOns}},
		"with profiles":         {edits: []func(*operatorv1.ClusterManager){withProfiles}, want: []string{addOns, profiles, work}},
		"with Applications": {edits: []func(*operatorv1.ClusterManager){withApplications},
			want: []string{addOns, applications, work}},
		"with imports":            {edits: []func(*operatorv1.ClusterManager){withImports}, want: []string{addOns, imports, work}},
		"with decisions":          {edits: []func(*operatorv1.ClusterManager){withDecisions}, want: []string{addOns, decisions, work}},
		"profiles alone":          {edits: []func(*operatorv1.ClusterManager){withProfiles, withoutWorks, withoutAddOns}, want: []string{profiles}},
		"hosted, without add-ons": {edits: []func(*operatorv1.ClusterManager){hostedAt("a.test"), withoutAddOns}, want: []string{work}},
		"hosted, without works":   {edits: []func(*operatorv1.ClusterManager){hostedAt("a.test"), withoutWorks}, want: []string{addOns}},
	} {
		planned := plannedOf(named("indigo", test.edits...), nil)
		p := planned.plan()
		for _, which := range []string{work, addOns, profiles, applications, decisions, imports} {
			on, role := slices.Contains(test.want, which), "open-cluster-management:indigo-"+which
			if _, found := find[*rbacv1.ClusterRole](p, role); found != on {
				t.Errorf("%s: ClusterRole %s: %t", name, role, found)
			}
			if _, found := find[*rbacv1.ClusterRoleBinding](p, role); found != on {
				t.Errorf("%s: ClusterRoleBinding %s: %t", name, role, found)
			}
			if account := accounts[which]; account != "" {
				if _, found := find[*corev1.ServiceAccount](p, account); found != on || slices.Contains(planned.accountNames(), account) != on {
					t.Errorf("%s: ServiceAccount %s: %t, accounts %v", name, account, found, planned.accountNames())
				}
			}
		}
		registration, _ := find[*rbacv1.ClusterRole](p, "open-cluster-management:indigo-registration:controller")
		for _, rule := range registration.Rules {
			if slices.Contains(rule.APIGroups, "multicluster.x-k8s.io") {
				t.Errorf("%s: the registration controllers have %v in any case", name, rule)
			}
		}
	}
}

// CM-27
func TestSyncLabels(t *testing.T) {
	t.Parallel()
	labelled := func(cm *operatorv1.ClusterManager) { cm.Labels = map[string]string{"team": "a"} }
	for _, object := range planOf(labelled, func(in *inputs) { in.syncLabels = true }).all() {
		if object.GetLabels()["team"] != "a" {
			t.Errorf("%T %s has no label", object, object.GetName())
		}
	}
	for _, object := range planOf(labelled, nil).all() {
		if object.GetLabels()["team"] != "" {
			t.Errorf("%T %s has the label", object, object.GetName())
		}
	}
}

// CM-09, CM-16: what the spec has and this version does not is reported.
func TestUnsupported(t *testing.T) {
	t.Parallel()
	cm := &operatorv1.ClusterManager{}
	cm.Spec.ServerConfiguration = &operatorv1.ServerConfiguration{}
	if got := unsupported(newPlanned(cm, inputs{})); got != nil {
		t.Errorf("%v of nothing", got)
	}
	cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{
		RegistrationDrivers:   []operatorv1.RegistrationDriverHub{{AuthType: "csr"}, {AuthType: "awsirsa"}},
		ImporterConfiguration: &operatorv1.ImporterConfiguration{Renderers: []string{"render-auto", "render-more"}}}
	cm.Spec.WorkConfiguration = &operatorv1.WorkConfiguration{WorkDriver: operatorv1.WorkDriverTypeGRPC}
	cm.Spec.ServerConfiguration.ImagePullSpec = "example.com/server"
	got := strings.Join(unsupported(newPlanned(cm, inputs{})), "; ")
	for _, part := range []string{"workDriver grpc: works reach clusters with the driver kube alone", "serverConfiguration",
		"importerConfiguration.renderers render-more: the renderers are render-auto and render-from-config-secret",
		"importerConfiguration.renderers: clusters are imported with the feature gate ClusterImporter alone"} {
		if !strings.Contains(got, part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	if strings.Contains(got, "authType=") {
		t.Errorf("got %s", got)
	}
}

// All kinds of a plan are watched, so that what is changed comes back.
func TestKindsAreWatched(t *testing.T) {
	t.Parallel()
	scheme := Scheme()
	for name, p := range map[string]*plan{"default": planOf(nil, nil), "hosted": planOf(hostedAt("192.0.2.1"), nil)} {
		watched := frame.ManagementKinds(hubKinds())
		for _, object := range p.onManagement() {
			checkWatched(t, name, object, scheme, watched)
		}
		if name == "hosted" {
			watched = append(hubKinds(), corev1.SchemeGroupVersion.WithKind("Endpoints"))
		}
		for _, object := range slices.Concat(objects(p.crds), p.onHub()) {
			checkWatched(t, name, object, scheme, watched)
		}
	}
}

func checkWatched(t *testing.T, name string, object client.Object, scheme *runtime.Scheme, watched []schema.GroupVersionKind) {
	t.Helper()
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil || !slices.Contains(watched, kind) {
		t.Errorf("%s: %T is not watched: %v", name, object, err)
	}
}

// The account and the Secrets that a component uses exist.
func TestReferences(t *testing.T) {
	t.Parallel()
	in := testInputs(&operatorv1.ClusterManager{})
	p := planOf(nil, nil)
	for _, d := range p.deployments {
		account := d.Spec.Template.Spec.ServiceAccountName
		if _, found := find[*corev1.ServiceAccount](p, account); !found {
			t.Errorf("%s runs as %s", d.Name, account)
		}
		if d.Namespace != in.namespace || d.Namespace != fleet.NamespaceHub {
			t.Errorf("%s is in %s", d.Name, d.Namespace)
		}
	}
}
