package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// serviceName is the Service, the Route and the prefix of the Secrets of a hub that runs in a cluster.
const serviceName = "multicluster-controlplane"

// namespaceFile is where a pod finds the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

var routeResource = schema.GroupVersionResource{Group: "route.openshift.io", Version: "v1", Resource: "routes"}

// Hosting is the cluster in which the hub runs as a pod.
type Hosting struct {
	// Namespace is the hub's own.
	Namespace string
	// Client reaches the API server of the cluster as the pod's service account.
	Client *rest.Config
}

// DetectHosting returns the hosting cluster, or nil when this process is not in a pod.
func DetectHosting() (*Hosting, error) {
	client, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reach the hosting cluster: %w", err)
	}
	namespace, err := os.ReadFile(namespaceFile)
	if err != nil {
		return nil, fmt.Errorf("find the namespace of this pod: %w", err)
	}
	return &Hosting{Namespace: strings.TrimSpace(string(namespace)), Client: client}, nil
}

// address is how clients reach the hub.
type address struct {
	// host and port are for clients outside; port 0 stands for none in the URL.
	host string
	port int
	// listen is the port of the API server.
	listen int
}

func (a address) url() string {
	host := a.host
	if a.port != 0 {
		return "https://" + net.JoinHostPort(host, fmt.Sprint(a.port))
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return "https://" + host
}

// findAddress says where the hub listens and which name clients use.
func (o *Options) findAddress(ctx context.Context) (address, error) {
	a := address{host: o.Config.APIServer.ExternalHostname, port: o.Config.APIServer.Port, listen: o.listenPort()}
	if a.host != "" {
		return a, nil
	}
	var err error
	if o.Hosting != nil {
		a.host, err = o.Hosting.externalHost(ctx)
	} else {
		a.host = hostAt(o.serving.BindAddress)
	}
	return a, err
}

// listenPort is the port of the API server on this machine.
func (o *Options) listenPort() int {
	if o.Hosting != nil {
		return o.hostedPort
	}
	return o.Config.APIServer.Port
}

// PeerAddress is HOST:PORT at which other hubs on the same etcd reach this one.
func (o *Options) PeerAddress() string {
	return net.JoinHostPort(hostAt(o.serving.BindAddress), strconv.Itoa(o.listenPort()))
}

// hostAt is the address at which a server is reached that listens at one: the same, but of all addresses the first that others can reach.
// On a machine without a network, that is its own.
func hostAt(bind net.IP) string {
	if !bind.IsUnspecified() {
		return bind.String()
	}
	host, err := utilnet.ResolveBindAddress(bind)
	if err != nil {
		return "127.0.0.1"
	}
	return host.String()
}

// externalHost finds out how the Service of the hub is exposed.
func (h *Hosting) externalHost(ctx context.Context) (string, error) {
	client, err := kubernetes.NewForConfig(h.Client)
	if err != nil {
		return "", err
	}
	service, err := client.CoreV1().Services(h.Namespace).Get(ctx, serviceName, metav1.GetOptions{})
	if err != nil {
		return "", h.hostUnknown("read Service %s: %w", serviceName, err)
	}
	switch service.Spec.Type {
	case corev1.ServiceTypeClusterIP:
		routeClient, err := dynamic.NewForConfig(h.Client)
		if err != nil {
			return "", err
		}
		return h.routeHost(ctx, routeClient)
	case corev1.ServiceTypeLoadBalancer:
		return h.loadBalancerHost(service)
	default:
		return "", h.hostUnknown("Service %s has type %s", serviceName, service.Spec.Type)
	}
}

func (h *Hosting) routeHost(ctx context.Context, client dynamic.Interface) (string, error) {
	route, err := client.Resource(routeResource).Namespace(h.Namespace).Get(ctx, serviceName, metav1.GetOptions{})
	if err != nil {
		return "", h.hostUnknown("Service %s is not reachable from outside and Route %s cannot be read: %w", serviceName, serviceName, err)
	}
	host, _, err := unstructured.NestedString(route.Object, "spec", "host")
	if err != nil || host == "" {
		return "", h.hostUnknown("Route %s has no host yet", serviceName)
	}
	return host, nil
}

func (h *Hosting) loadBalancerHost(service *corev1.Service) (string, error) {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.Hostname != "" {
			return ingress.Hostname, nil
		}
		if ingress.IP != "" {
			return ingress.IP, nil
		}
	}
	return "", h.hostUnknown("Service %s has no load balancer address yet", serviceName)
}

func (h *Hosting) hostUnknown(format string, args ...any) error {
	return fmt.Errorf("find out the host name of the hub in namespace %s: %w; set apiserver.externalHostname in %s",
		h.Namespace, fmt.Errorf(format, args...), ocmconfig.FileName)
}

// serverNames are the names in the serving certificate.
func (o *Options) serverNames(a address) []string {
	namespace := metav1.NamespaceDefault
	if o.Hosting != nil {
		namespace = o.Hosting.Namespace
	}
	names := []string{a.host}
	for _, name := range []string{
		"kubernetes.default", "kubernetes.default.svc",
		serviceName + "." + namespace, serviceName + "." + namespace + ".svc",
		"localhost", "127.0.0.1", "10.0.0.1",
	} {
		if name != a.host {
			names = append(names, name)
		}
	}
	if bind := o.serving.BindAddress; bind.IsLoopback() && a.host == bind.String() {
		// Something on the machine may hand on TLS that comes for its address, as agents may know the hub by.
		if machine, err := utilnet.ResolveBindAddress(bind); err == nil {
			names = append(names, machine.String())
		}
	}
	return names
}
