package clustermanager

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/frame"
)

// withGRPC has clusters register through the gRPC server, too, which is exposed by these endpoints.
func withGRPC(exposures ...operatorv1.Endpoint) func(*operatorv1.ClusterManager) {
	return func(cm *operatorv1.ClusterManager) {
		cm.Spec.RegistrationConfiguration = &operatorv1.RegistrationHubConfiguration{RegistrationDrivers: []operatorv1.RegistrationDriverHub{
			{AuthType: operatorv1.RegistrationAuthTypeCSR},
			{AuthType: operatorv1.RegistrationAuthTypeGRPC, GRPC: &operatorv1.GRPCRegistrationConfig{AutoApprovedIdentities: []string{"a", "b"}}}}}
		for _, endpoint := range exposures {
			if cm.Spec.ServerConfiguration == nil {
				cm.Spec.ServerConfiguration = &operatorv1.ServerConfiguration{}
			}
			cm.Spec.ServerConfiguration.EndpointsExposure = append(cm.Spec.ServerConfiguration.EndpointsExposure,
				operatorv1.EndpointExposure{Usage: operatorv1.EndpointUsageAgentToHub, Protocol: operatorv1.EndpointProtocolGRPC, GRPC: &endpoint})
		}
	}
}

func hostname(host string) operatorv1.Endpoint {
	return operatorv1.Endpoint{Type: operatorv1.EndpointTypeHostname, Hostname: &operatorv1.HostnameConfig{Host: host}}
}

func loadBalancer(host string) operatorv1.Endpoint {
	return operatorv1.Endpoint{Type: operatorv1.EndpointTypeLoadBalancer, LoadBalancer: &operatorv1.OptionalHostConfig{Host: host}}
}

func route(host string) operatorv1.Endpoint {
	return operatorv1.Endpoint{Type: operatorv1.EndpointTypeRoute, Route: &operatorv1.OptionalHostConfig{Host: host}}
}

// CM-09, CM-12, CM-17, GR-01: the server runs where clusters register through it, and the registration controllers sign for it.
func TestGRPCComponents(t *testing.T) {
	t.Parallel()
	approving := func(cm *operatorv1.ClusterManager) {
		withGRPC()(cm)
		cm.Spec.RegistrationConfiguration.FeatureGates = []operatorv1.FeatureGate{{Feature: "ManagedClusterAutoApproval", Mode: "Enable"}}
	}
	const signer = " --grpc-ca-file=/var/run/secrets/grpc-signer/tls.crt --grpc-key-file=/var/run/secrets/grpc-signer/tls.key"
	for name, test := range map[string]struct {
		edit     func(*operatorv1.ClusterManager)
		inputs   func(*inputs)
		of, want string
	}{
		"server": {edit: withGRPC(), of: "grpc-server", want: "/server grpc --server-config=/var/run/secrets/hub/grpc/config/config.yaml"},
		"one replica, which needs no leader": {edit: withGRPC(), inputs: func(in *inputs) { in.replicas = 1 }, of: "grpc-server",
			want: "/server grpc --server-config=/var/run/secrets/hub/grpc/config/config.yaml"},
		"TLS": {edit: withGRPC(), inputs: func(in *inputs) { in.tlsFlags = []string{"--tls-min-version=VersionTLS13"} }, of: "grpc-server",
			want: "/server grpc --server-config=/var/run/secrets/hub/grpc/config/config.yaml --tls-min-version=VersionTLS13"},
		"hosted server": {of: "grpc-server", edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			withGRPC()(cm)
		}, want: "/server grpc --server-config=/var/run/secrets/hub/grpc/config/config.yaml --kubeconfig=/var/run/secrets/hub-kubeconfig/kubeconfig"},
		"signer": {edit: withGRPC(), of: "registration-controller",
			want: "/registration controller --enabled-registration-drivers=csr,grpc" + signer},
		"signer of a hosted hub": {of: "registration-controller", edit: func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			withGRPC()(cm)
		}, want: "/registration controller --enabled-registration-drivers=csr,grpc --kubeconfig=/var/run/secrets/hub/kubeconfig" + signer},
		"users to approve": {edit: approving, of: "registration-controller", want: "/registration controller " +
			"--feature-gates=ManagedClusterAutoApproval=true --enabled-registration-drivers=csr,grpc --auto-approved-grpc-users=a,b" + signer},
		"users of a directory": {edit: func(cm *operatorv1.ClusterManager) {
			approving(cm)
			cm.Spec.RegistrationConfiguration.RegistrationDrivers[1].GRPC.AutoApprovedIdentities = []string{"CN=a,OU=fleet", "b"}
		}, of: "registration-controller", want: "/registration controller --feature-gates=ManagedClusterAutoApproval=true " +
			`--enabled-registration-drivers=csr,grpc --auto-approved-grpc-users="CN=a,OU=fleet",b` + signer},
		"no other way to register": {of: "registration-controller", edit: func(cm *operatorv1.ClusterManager) {
			withGRPC()(cm)
			drivers := &cm.Spec.RegistrationConfiguration.RegistrationDrivers
			*drivers = (*drivers)[1:]
		}, want: "/registration controller --enabled-registration-drivers=grpc" + signer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := argsOf(t, planOf(test.edit, test.inputs), test.of); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// GR-01: the controllers that approve what the server of a hosted hub requests know where its account is. Programs of Open Cluster
// Management start nevertheless.
func TestControllersKnowTheGRPCServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit func(*operatorv1.ClusterManager)
		want string
	}{
		"default": {withGRPC(), ""},
		"hosted": {func(cm *operatorv1.ClusterManager) {
			hostedAt("hub.example.com")(cm)
			withGRPC()(cm)
		}, "cluster-manager"},
	} {
		p := planOf(test.edit, nil)
		for _, controllers := range []string{registrationController, addOnManager} {
			d := deployment(t, p, controllers)
			if got := environment(d)[fleet.EnvHubNamespace]; got != test.want {
				t.Errorf("%s: %s has the namespace %q, want %q", name, controllers, got, test.want)
			}
			if args := d.Spec.Template.Spec.Containers[0].Args; strings.Contains(strings.Join(args, " "), "--grpc-server-namespace") {
				t.Errorf("%s: %s has a flag that others do not know: %q", name, controllers, args)
			}
		}
	}
}

// GR-01: every replica serves, and sees the files at the paths that its settings have by default.
func TestGRPCServer(t *testing.T) {
	t.Parallel()
	server := deployment(t, planOf(withGRPC(), nil), "grpc-server")
	if *server.Spec.Replicas != 3 || server.Spec.Template.Spec.ServiceAccountName != "grpc-server-sa" {
		t.Errorf("%d replicas as %s", *server.Spec.Replicas, server.Spec.Template.Spec.ServiceAccountName)
	}
	container := server.Spec.Template.Spec.Containers[0]
	if container.Image != "example.com/registration:v1" || container.LivenessProbe.HTTPGet.Port.IntValue() != 8443 {
		t.Errorf("image %s, probe %v", container.Image, container.LivenessProbe)
	}
	if ready := container.ReadinessProbe.HTTPGet; ready.Path != "/readyz" || ready.Scheme != "HTTPS" || ready.Port.IntValue() != 8443 {
		t.Errorf("it is ready by the probe %v", ready)
	}
	var mounts []string
	for _, mount := range container.VolumeMounts {
		mounts = append(mounts, mount.MountPath)
	}
	for _, want := range []string{"/var/run/secrets/hub/grpc/config", "/var/run/secrets/hub/grpc/serving-cert", "/var/run/secrets/hub/grpc/ca"} {
		if !slices.Contains(mounts, want) {
			t.Errorf("%s is not among %v", want, mounts)
		}
	}
	own := deployment(t, planOf(func(cm *operatorv1.ClusterManager) {
		withGRPC()(cm)
		cm.Spec.ServerConfiguration = &operatorv1.ServerConfiguration{ImagePullSpec: "example.com/server:v2"}
	}, nil), "grpc-server")
	if image := own.Spec.Template.Spec.Containers[0].Image; image != "example.com/server:v2" {
		t.Errorf("image %s", image)
	}
}

// CM-17: without the driver there is nothing of the server.
func TestWithoutGRPC(t *testing.T) {
	t.Parallel()
	for _, object := range planOf(nil, nil).all() {
		if _, isPolicy := object.(*rbacv1.ClusterRole); strings.Contains(object.GetName(), "grpc") && !isPolicy {
			t.Errorf("%T %s", object, object.GetName())
		}
	}
	with := planOf(withGRPC(), nil)
	for _, name := range []string{"open-cluster-management:cluster-manager-grpc-server", "open-cluster-management:cluster-manager-registration:grpc"} {
		if _, found := find[*rbacv1.ClusterRole](with, name); !found {
			t.Errorf("there is no ClusterRole %s", name)
		}
	}
	for _, account := range plannedOf(nil, nil).accountNames() {
		if account == fleet.ServiceAccountGRPCServer {
			t.Error("a hosted hub without the server gets a kubeconfig for it")
		}
	}
}

// GR-02: the settings that a user has stored stay, and pods that read them at their start are replaced when they change.
func TestGRPCSettings(t *testing.T) {
	t.Parallel()
	hashes := map[string]bool{}
	for name, test := range map[string]struct {
		stored *corev1.ConfigMap
		want   string
	}{
		"none":    {want: defaultGRPCSettings},
		"no key":  {stored: &corev1.ConfigMap{Data: map[string]string{"other": "a"}}, want: defaultGRPCSettings},
		"of user": {stored: &corev1.ConfigMap{Data: map[string]string{"config.yaml": "server_bind_port: \"8091\""}}, want: `server_bind_port: "8091"`},
		"empty":   {stored: &corev1.ConfigMap{Data: map[string]string{"config.yaml": ""}}},
	} {
		if test.stored != nil {
			test.stored.ResourceVersion = "7"
		}
		p := planOf(withGRPC(), func(in *inputs) { in.grpc.settings = test.stored })
		settings, _ := find[*corev1.ConfigMap](p, "grpc-server-config")
		if got := settings.Data["config.yaml"]; got != test.want {
			t.Errorf("%s: %q", name, got)
		}
		if (settings.ResourceVersion == "7") != (test.stored != nil) {
			t.Errorf("%s: a change by a user at the same time would be lost", name)
		}
		hashes[deployment(t, p, "grpc-server").Spec.Template.Annotations[annotationConfigHash]] = true
	}
	if len(hashes) != 3 {
		t.Errorf("%d hashes of 3 contents", len(hashes))
	}
}

// CM-16, CM-23, O4: the Service, and the names in the certificate, follow from how the server is exposed.
func TestGRPCExposure(t *testing.T) {
	t.Parallel()
	const own = "cluster-manager-grpc-server.open-cluster-management-hub.svc"
	assigned := func(in *inputs) { in.grpc.addresses = []string{"lb.example.net", "192.0.2.7"} }
	for name, test := range map[string]struct {
		edit        func(*operatorv1.ClusterManager)
		serviceType corev1.ServiceType
		port        int32
		hosts       []string
	}{
		"nowhere":  {edit: withGRPC(), serviceType: corev1.ServiceTypeClusterIP, port: 8090, hosts: []string{own}},
		"hostname": {edit: withGRPC(hostname("hub.example.com")), serviceType: "ClusterIP", port: 8090, hosts: []string{own, "hub.example.com"}},
		"address":  {edit: withGRPC(hostname("2001:db8::1")), serviceType: "ClusterIP", port: 8090, hosts: []string{own, "2001:db8::1"}},
		"type is hostname by default": {edit: withGRPC(operatorv1.Endpoint{Hostname: &operatorv1.HostnameConfig{Host: "*.example.com"}}),
			serviceType: "ClusterIP", port: 8090, hosts: []string{own, "*.example.com"}},
		"route": {edit: withGRPC(route("grpc.apps.example.com")), serviceType: "ClusterIP", port: 8090, hosts: []string{own, "grpc.apps.example.com"}},
		"load balancer": {edit: withGRPC(loadBalancer("")), serviceType: "LoadBalancer", port: 443,
			hosts: []string{own, "lb.example.net", "192.0.2.7"}},
		"load balancer with a name": {edit: withGRPC(loadBalancer("grpc.example.com"), loadBalancer("grpc.example.com")), serviceType: "LoadBalancer",
			port: 443, hosts: []string{own, "grpc.example.com", "lb.example.net", "192.0.2.7"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := planOf(test.edit, assigned)
			service, _ := find[*corev1.Service](p, "cluster-manager-grpc-server")
			port := service.Spec.Ports[0]
			if service.Spec.Type != test.serviceType || port.Port != test.port || port.TargetPort.IntValue() != 8090 ||
				service.Spec.Selector["app"] != "cluster-manager-grpc-server" {
				t.Errorf("%v", service.Spec)
			}
			cm := &operatorv1.ClusterManager{ObjectMeta: metav1.ObjectMeta{Name: "cluster-manager"}}
			test.edit(cm)
			in := testInputs(cm)
			assigned(&in)
			servers := newPlanned(cm, in).servers()
			if last := servers[len(servers)-1]; last.Secret != "grpc-server-serving-cert" || !slices.Equal(last.Hosts, test.hosts) {
				t.Errorf("certificate %s for %v", last.Secret, last.Hosts)
			}
		})
	}
}

// CM-16: what of the exposures has no effect is said, with the field.
func TestGRPCExposureProblems(t *testing.T) {
	t.Parallel()
	const path = "spec.serverConfiguration.endpointsExposure[0]."
	withoutEndpoint := func(cm *operatorv1.ClusterManager) {
		withGRPC(hostname("hub.example.com"))(cm)
		cm.Spec.ServerConfiguration.EndpointsExposure[0].GRPC = nil
	}
	withoutDriver := func(cm *operatorv1.ClusterManager) {
		withGRPC(hostname("hub.example.com"))(cm)
		cm.Spec.RegistrationConfiguration = nil
	}
	https := func(cm *operatorv1.ClusterManager) {
		withGRPC(hostname("hub.example.com"))(cm)
		cm.Spec.ServerConfiguration.EndpointsExposure[0].Protocol = operatorv1.EndpointProtocolHTTPS
	}
	for name, test := range map[string]struct {
		edit func(*operatorv1.ClusterManager)
		want string
	}{
		"fine":        {edit: withGRPC(hostname("hub.example.com"), loadBalancer(""), route("a.example.com"))},
		"https":       {edit: https, want: path + "protocol https: the server speaks grpc alone"},
		"URL":         {edit: withGRPC(hostname("https://hub.example.com:443")), want: path + `grpc.hostname.host "https://hub.example.com:443": it must be`},
		"no host":     {edit: withGRPC(operatorv1.Endpoint{}), want: path + `grpc.hostname.host "": it must be`},
		"no route":    {edit: withGRPC(route("")), want: path + `grpc.route.host "": it must be`},
		"port":        {edit: withGRPC(loadBalancer("a.example.com:443")), want: path + `grpc.loadBalancer.host "a.example.com:443": it must be`},
		"no endpoint": {edit: withoutEndpoint, want: path + "grpc is empty"},
		"no driver":   {edit: withoutDriver, want: "spec.serverConfiguration: the server runs where"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cm := &operatorv1.ClusterManager{}
			test.edit(cm)
			got := strings.Join(unsupported(newPlanned(cm, testInputs(cm))), "; ")
			if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if test.want != "" && servesGRPC(cm) && len(grpc{newPlanned(cm, testInputs(cm))}.hosts()) > 1 {
				t.Error("the certificate is for what cannot be reached")
			}
		})
	}
}

// All kinds of the plan with the server are watched, its account exists, and its policies are for its account.
func TestGRPCObjects(t *testing.T) {
	t.Parallel()
	hostedToo := func(cm *operatorv1.ClusterManager) {
		hostedAt("192.0.2.1")(cm)
		withGRPC(loadBalancer(""))(cm)
	}
	for name, edit := range map[string]func(*operatorv1.ClusterManager){"default": withGRPC(loadBalancer("")), "hosted": hostedToo} {
		p := planOf(edit, nil)
		for _, object := range slices.Concat(p.onManagement(), objects(p.crds)) {
			checkWatched(t, name, object, Scheme(), frame.ManagementKinds(hubKinds()))
		}
		if !slices.ContainsFunc(p.onHub(), func(o client.Object) bool {
			_, isAccount := o.(*corev1.ServiceAccount)
			return isAccount && o.GetName() == "grpc-server-sa"
		}) {
			t.Errorf("%s: the account of the server is not on the hub", name)
		}
	}
}
