package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
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
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
	"github.com/capstan-io/capstan/internal/controlplane/pki"
)

// serviceName is the Service, the Route and the prefix of the Secrets of a hub that runs in a cluster.
const serviceName = "multicluster-controlplane"

// namespaceFile is where a pod finds the name of its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

const (
	// localHost is where this machine reaches itself.
	localHost = "127.0.0.1"
	// formerHosts is how many former addresses of the hub its certificate has: clients that know one of them still reach a hub that has it
	// again.
	formerHosts = 4
)

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
	// former are hosts at which clients may still look for the hub.
	former []string
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
		a.host, a.former = o.detectHost(ctx), o.servedAddresses()
	}
	return a, err
}

// detectHost is the first address of this machine that others can reach. While that cannot be found out, because the default route is
// missing, it is the host of the start before: agents know the hub by it.
func (o *Options) detectHost(ctx context.Context) string {
	logger := klog.FromContext(ctx)
	before := o.hostBefore()
	found, err := o.resolve(o.serving.BindAddress)
	switch {
	case err != nil && before == "":
		logger.Info("Cannot find out the address of this machine; the hub is reached from this machine alone", "reason", err.Error())
		return localHost
	case err != nil:
		logger.Info("Cannot find out the address of this machine; the hub keeps the one that it had", "host", before, "reason", err.Error())
		return before
	case before != "" && before != found.String():
		logger.Info("The address of this machine has changed; agents look for the hub at the former one until they are told. Set "+
			"apiserver.externalHostname in "+ocmconfig.FileName+" to a name that stays", "host", found.String(), "former", before)
	}
	return found.String()
}

// hostBefore is the host in the admin kubeconfig of the start before; empty if there was none, or others could not reach it.
func (o *Options) hostBefore() string {
	config, err := clientcmd.LoadFromFile(AdminKubeconfig(o.Config.DataDirectory))
	if err != nil || config.Clusters[kubeconfigName] == nil {
		return ""
	}
	server, err := url.Parse(config.Clusters[kubeconfigName].Server)
	if err != nil || server.Hostname() == localHost {
		return ""
	}
	return server.Hostname()
}

// servedAddresses are the addresses in the serving certificate of the start before, the latest first.
func (o *Options) servedAddresses() (addresses []string) {
	certs, err := certutil.CertsFromFile(filepath.Join(certDir(o.Config.DataDirectory), string(pki.APIServer)+".crt"))
	if err != nil {
		return nil
	}
	for _, ip := range certs[0].IPAddresses {
		addresses = append(addresses, ip.String())
	}
	return addresses
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
	host := o.serving.BindAddress.String()
	if o.serving.BindAddress.IsUnspecified() {
		host = routableHost(o.serving.BindAddress)
	}
	return net.JoinHostPort(host, strconv.Itoa(o.listenPort()))
}

// routableHost is the first address of this machine that others can reach; on a machine without a network, its own.
func routableHost(bind net.IP) string {
	host, err := utilnet.ResolveBindAddress(bind)
	if err != nil {
		return localHost
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
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range []string{
		"kubernetes.default", "kubernetes.default.svc",
		serviceName + "." + namespace, serviceName + "." + namespace + ".svc",
		"localhost", localHost, "10.0.0.1",
	} {
		add(name)
	}
	longest := len(names) + formerHosts
	for _, name := range a.former {
		if len(names) < longest {
			add(name)
		}
	}
	return names
}
