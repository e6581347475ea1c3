package clustermanager

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/workload"
)

// Where the gRPC server sees its files, which are the defaults of its settings, and where the registration controllers see the certificate
// authority that signs the certificates of its clients.
const (
	grpcConfigDir      = "/var/run/secrets/hub/grpc/config"
	grpcServingCertDir = "/var/run/secrets/hub/grpc/serving-cert"
	grpcCADir          = "/var/run/secrets/hub/grpc/ca"
	grpcSignerDir      = "/var/run/secrets/grpc-signer"
	// grpcKubeconfigDir has the kubeconfig of a hosted hub: not above the other directories, in which volumes are mounted.
	grpcKubeconfigDir = "/var/run/secrets/hub-kubeconfig"
)

// loadBalancerPort is the port of a Service that exposes the gRPC server by a load balancer.
const loadBalancerPort = 443

// annotationConfigHash on the pods of the gRPC server is the hash of its settings, which it reads when it starts.
const annotationConfigHash = "capstan.io/config-hash"

// defaultGRPCSettings leave all settings at their defaults.
const defaultGRPCSettings = "# Settings of the gRPC server, such as max_receive_message_size. What is not here has its default.\n{}\n"

// grpcInputs are what is stored of the gRPC server.
type grpcInputs struct {
	// settings is its ConfigMap; nil if there is none.
	settings *corev1.ConfigMap
	// addresses are those that the load balancer of its Service has: names and IP addresses.
	addresses []string
}

// hasDriver reports whether clusters register with a driver.
func hasDriver(cm *operatorv1.ClusterManager, authType operatorv1.RegistrationAuthType) bool {
	return slices.ContainsFunc(registrationOf(cm).RegistrationDrivers, func(driver operatorv1.RegistrationDriverHub) bool {
		return driver.AuthType == authType
	})
}

// servesGRPC reports whether the hub has a gRPC server: if clusters register through it.
func servesGRPC(cm *operatorv1.ClusterManager) bool {
	return hasDriver(cm, operatorv1.RegistrationAuthTypeGRPC)
}

// grpcInputs reads what is stored of the gRPC server.
func (c *Controller) grpcInputs(ctx context.Context, cm *operatorv1.ClusterManager) (in grpcInputs, err error) {
	if !servesGRPC(cm) {
		return in, nil
	}
	settings, service := &corev1.ConfigMap{}, &corev1.Service{}
	if found, err := c.getIfExists(ctx, namespaceOf(cm), fleet.ConfigMapGRPCServer, settings); err != nil {
		return in, err
	} else if found {
		in.settings = settings
	}
	if _, err := c.getIfExists(ctx, namespaceOf(cm), cm.Name+"-"+grpcServer, service); err != nil {
		return in, err
	}
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		for _, address := range []string{ingress.Hostname, ingress.IP} {
			if address != "" {
				in.addresses = append(in.addresses, address)
			}
		}
	}
	return in, nil
}

// grpc is the gRPC server of a hub.
type grpc struct{ planned }

// component runs the gRPC server. All replicas serve: there is no leader.
func (g grpc) component() workload.Component {
	image := g.Spec.RegistrationImagePullSpec
	if server := g.Spec.ServerConfiguration; server != nil {
		image = cmp.Or(server.ImagePullSpec, image)
	}
	settings := g.configMap()
	hash := sha256.Sum256([]byte(settings.Data[fleet.KeyConfig]))
	component := workload.Component{
		Name: g.name(grpcServer), App: g.name(grpcServer), Image: g.imageOf(image), ServiceAccount: fleet.ServiceAccountGRPCServer,
		Args:           slices.Concat([]string{"/server", "grpc", "--server-config=" + grpcConfigDir + "/" + fleet.KeyConfig}, g.tlsFlags),
		Ports:          []corev1.ContainerPort{{Name: "grpc", ContainerPort: grpcPort}},
		Readiness:      &corev1.HTTPGetAction{Path: "/readyz", Scheme: corev1.URISchemeHTTPS, Port: intstr.FromInt32(workload.HealthPort)},
		PodAnnotations: map[string]string{annotationConfigHash: hex.EncodeToString(hash[:])},
		Volumes: []workload.Volume{
			workload.ConfigMapVolume("grpc-server-config", grpcConfigDir, settings.Name),
			workload.SecretVolume("serving-cert", grpcServingCertDir, fleet.SecretGRPCServing, false),
			workload.ConfigMapVolume("ca", grpcCADir, fleet.ConfigMapCABundle),
		},
	}
	g.mountHubKubeconfig(&component, fleet.ServiceAccountGRPCServer, grpcKubeconfigDir)
	return component
}

// configMap is the ConfigMap with the settings of the gRPC server: what a user has stored there stays. It has the resource version of
// what it replaces, because a user may be storing something else.
func (g grpc) configMap() *corev1.ConfigMap {
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: fleet.ConfigMapGRPCServer},
		Data: map[string]string{fleet.KeyConfig: defaultGRPCSettings}}
	if stored := g.grpc.settings; stored != nil {
		settings.ResourceVersion = stored.ResourceVersion
		if content, found := stored.Data[fleet.KeyConfig]; found {
			settings.Data[fleet.KeyConfig] = content
		}
	}
	return settings
}

// signWith gives the registration controllers the certificate authority that the gRPC server knows its clients by.
func (g grpc) signWith(component *workload.Component) {
	component.Args = append(component.Args, "--grpc-ca-file="+grpcSignerDir+"/"+corev1.TLSCertKey,
		"--grpc-key-file="+grpcSignerDir+"/"+corev1.TLSPrivateKeyKey)
	component.Volumes = append(component.Volumes, workload.SecretVolume("grpc-signer", grpcSignerDir, fleet.SecretSigner, false))
}

// clientService is where clients in the cluster, and a load balancer, find the gRPC server.
func (g grpc) clientService() *corev1.Service {
	service := g.service(g.name(grpcServer), g.name(grpcServer), grpcPort, grpcPort)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	if slices.ContainsFunc(g.exposures(), func(e exposure) bool { return e.Type == operatorv1.EndpointTypeLoadBalancer }) {
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service.Spec.Ports = []corev1.ServicePort{{Port: loadBalancerPort, TargetPort: intstr.FromInt32(grpcPort), Protocol: corev1.ProtocolTCP}}
	}
	return service
}

// hosts are the names and addresses by which clients reach the gRPC server, that of its Service first.
func (g grpc) hosts() []string {
	hosts := []string{fmt.Sprintf("%s.%s.svc", g.name(grpcServer), g.namespace)}
	add := func(more []string) {
		for _, host := range more {
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	for _, exposure := range g.exposures() {
		add(exposure.hosts)
		if exposure.Type == operatorv1.EndpointTypeLoadBalancer {
			add(g.grpc.addresses)
		}
	}
	return hosts
}

// exposure is an address of the gRPC server, as the spec has it.
type exposure struct {
	operatorv1.Endpoint
	// hosts are those that the spec names.
	hosts []string
}

// exposures are those of the spec that the operator can provide for.
func (g grpc) exposures() []exposure {
	usable, _ := exposuresOf(g.ClusterManager)
	return usable
}

// exposuresOf are the exposures of the spec, and what is wrong with those that cannot be provided for.
func exposuresOf(cm *operatorv1.ClusterManager) (usable []exposure, problems []string) {
	if cm.Spec.ServerConfiguration == nil {
		return nil, nil
	}
	path := field.NewPath("spec", "serverConfiguration", "endpointsExposure")
	for i, specified := range cm.Spec.ServerConfiguration.EndpointsExposure {
		one, problem := exposureOf(path.Index(i), specified)
		if problem != "" {
			problems = append(problems, problem)
			continue
		}
		usable = append(usable, one)
	}
	return usable, problems
}

func exposureOf(path *field.Path, specified operatorv1.EndpointExposure) (usable exposure, problem string) {
	if specified.Protocol != "" && specified.Protocol != operatorv1.EndpointProtocolGRPC {
		return usable, fmt.Sprintf("%s %s: the server speaks %s alone", path.Child("protocol"), specified.Protocol, operatorv1.EndpointProtocolGRPC)
	}
	if specified.GRPC == nil {
		return usable, fmt.Sprintf("%s is empty: it must say how the server is reached", path.Child("grpc"))
	}
	endpoint := *specified.GRPC
	path = path.Child("grpc")
	var host string
	switch endpoint.Type {
	case "", operatorv1.EndpointTypeHostname:
		path = path.Child("hostname", "host")
		if endpoint.Hostname != nil {
			host = endpoint.Hostname.Host
		}
	case operatorv1.EndpointTypeRoute:
		path = path.Child("route", "host")
		if endpoint.Route != nil {
			host = endpoint.Route.Host
		}
	case operatorv1.EndpointTypeLoadBalancer:
		path = path.Child("loadBalancer", "host")
		if endpoint.LoadBalancer == nil || endpoint.LoadBalancer.Host == "" {
			return exposure{Endpoint: endpoint}, "" // what the load balancer is assigned
		}
		host = endpoint.LoadBalancer.Host
	}
	if !isHost(host) {
		return usable, fmt.Sprintf("%s %q: it must be the host name or IP address by which clients reach the server, without scheme and port", path, host)
	}
	return exposure{Endpoint: endpoint, hosts: []string{host}}, ""
}

// isHost reports whether a certificate can be made for the host.
func isHost(host string) bool {
	if strings.HasPrefix(host, "*.") {
		return len(validation.IsWildcardDNS1123Subdomain(host)) == 0
	}
	return net.ParseIP(host) != nil || len(validation.IsDNS1123Subdomain(host)) == 0
}

// unsupportedServer are the fields of the server's configuration that have no effect.
func unsupportedServer(cm *operatorv1.ClusterManager) []string {
	server := cm.Spec.ServerConfiguration
	switch {
	case server == nil:
		return nil
	case !servesGRPC(cm) && (server.ImagePullSpec != "" || len(server.EndpointsExposure) > 0):
		return []string{fmt.Sprintf("spec.serverConfiguration: the server runs where clusters register through it, with authType %s in "+
			"spec.registrationConfiguration.registrationDrivers", operatorv1.RegistrationAuthTypeGRPC)}
	case !servesGRPC(cm):
		return nil
	}
	_, problems := exposuresOf(cm)
	return problems
}
